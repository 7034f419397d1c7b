#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moment::pipeline {

// A thread of one store that makes its blocking calls in the order posted: one makes Drop, Begin
// and Commit, another Sweep.
class Committer {
 public:
  Committer();
  ~Committer();  // runs what was posted, then ends
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  void Post(std::function<void()> work);

 private:
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !work_.empty() || stopping_; }
  void Main();

  absl::Mutex mutex_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace moment::pipeline
