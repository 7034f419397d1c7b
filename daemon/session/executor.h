#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moment::session {

// One thread that runs what is posted, in order. Its owner must not be destroyed on it.
class Executor {
 public:
  Executor();
  ~Executor();  // runs what was posted, then joins

  void Post(std::function<void()> job);

 private:
  void Run();

  absl::Mutex mutex_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moment::session
