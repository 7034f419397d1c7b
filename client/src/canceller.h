#pragma once

#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace moment::client {

// Lets another thread end the call that runs on a store: the RPC in progress, or the wait between
// two attempts. Thread-safe.
class Canceller {
 public:
  // Before a call: what was cancelled before does not concern it.
  void Begin() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    cancelled_ = false;
  }
  void Cancel() ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    if (context_ != nullptr) {
      context_->TryCancel();
    }
  }
  bool cancelled() const ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    return cancelled_;
  }
  // Returns early when cancelled.
  void Wait(absl::Duration time) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(&cancelled_), time);
  }

 private:
  friend class CancellableContext;

  void Set(grpc::ClientContext* context) ABSL_LOCKS_EXCLUDED(mutex_) {
    absl::MutexLock lock(&mutex_);
    context_ = context;
    if (context != nullptr && cancelled_) {
      context->TryCancel();
    }
  }

  mutable absl::Mutex mutex_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ClientContext* context_ ABSL_GUARDED_BY(mutex_) = nullptr;
};

// The context of one RPC that a Canceller can end.
class CancellableContext {
 public:
  explicit CancellableContext(Canceller& canceller) : canceller_(canceller) {
    canceller_.Set(&context_);
  }
  ~CancellableContext() { canceller_.Set(nullptr); }
  CancellableContext(const CancellableContext&) = delete;
  CancellableContext& operator=(const CancellableContext&) = delete;

  grpc::ClientContext* get() { return &context_; }

 private:
  Canceller& canceller_;
  grpc::ClientContext context_;
};

}  // namespace moment::client
