#pragma once

#include <functional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace moment::pipeline {

// Something that happened, told to the loop. Embedded in the object it happened to, so that posting
// allocates nothing; posted again only after it ran.
struct Event {
  void (*run)(Event* event) noexcept = nullptr;
  void* context = nullptr;
  Event* next = nullptr;  // the loop's
};

// One thread that runs events in the order they were posted, and `after_batch` after each batch of
// them. Post and Run come from any thread.
class EventLoop {
 public:
  explicit EventLoop(std::function<void()> after_batch);
  ~EventLoop();  // runs what was posted, then ends
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  void Post(Event* event);
  // Runs `work` on the loop; allocates, so not for what happens per chunk.
  void PostFunction(std::function<void()> work);
  // The same, and waits until it ran. Not from the loop itself.
  void RunAndWait(const std::function<void()>& work);

 private:
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return head_ != nullptr || stopping_; }
  void Main();

  std::function<void()> after_batch_;
  absl::Mutex mutex_;
  Event* head_ ABSL_GUARDED_BY(mutex_) = nullptr;
  Event* tail_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the members above
};

}  // namespace moment::pipeline
