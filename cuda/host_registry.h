#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "cuda/owners.h"
#include "cuda/registered_ranges.h"

namespace moment::cuda {

// The host memory that this process has pinned: once for all GPUs, however many of them ask.
// Thread-safe.
class HostRegistry {
 public:
  static HostRegistry& Process();

  // Each Register has its Unregister, with the same memory. INTERNAL if the driver refuses.
  absl::Status Register(const Context& context, std::span<std::byte> memory);
  void Unregister(const Context& context, std::span<std::byte> memory);

  // For reading `ranges`; nothing is pinned or released meanwhile.
  absl::Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  const RegisteredRanges& ranges() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return ranges_; }

 private:
  absl::Mutex mutex_;
  RegisteredRanges ranges_ ABSL_GUARDED_BY(mutex_);
  std::map<const std::byte*, uint32_t> users_ ABSL_GUARDED_BY(mutex_);  // by begin
};

}  // namespace moment::cuda
