#pragma once

#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace moment::cli {

// A wish to stop, from Ctrl-C to whoever works. Thread-safe.
class Cancellation {
 public:
  void Cancel();
  bool cancelled() const;
  // True as soon as it is cancelled; false after `duration`.
  bool AwaitFor(absl::Duration duration) const;

  // While it lives, Cancel also calls `on_cancel` (at once if it was called before). The callback
  // runs with no other Scope being made or ended, and must not touch this object.
  class Scope {
   public:
    Scope(Cancellation& cancellation, std::function<void()> on_cancel);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Cancellation& cancellation_;
  };

 private:
  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void()> on_cancel_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moment::cli
