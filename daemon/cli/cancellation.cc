#include "daemon/cli/cancellation.h"

#include <utility>

namespace moment::cli {

void Cancellation::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (on_cancel_) {
    on_cancel_();
  }
}

bool Cancellation::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

bool Cancellation::AwaitFor(absl::Duration duration) const {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&cancelled_), duration);
}

Cancellation::Scope::Scope(Cancellation& cancellation, std::function<void()> on_cancel)
    : cancellation_(cancellation) {
  absl::MutexLock lock(&cancellation_.mutex_);
  if (cancellation_.cancelled_) {
    on_cancel();
  }
  cancellation_.on_cancel_ = std::move(on_cancel);
}

Cancellation::Scope::~Scope() {
  absl::MutexLock lock(&cancellation_.mutex_);
  cancellation_.on_cancel_ = nullptr;
}

}  // namespace moment::cli
