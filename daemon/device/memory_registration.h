#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/device/device.h"

namespace moment::device {

// Keeps host memory registered with some devices, which outlive it, as does the memory.
class MemoryRegistration {
 public:
  // With all of them, or with none and the error of the one that refused.
  static absl::StatusOr<MemoryRegistration> Create(const std::vector<Device*>& devices,
                                                   std::span<std::byte> memory);
  MemoryRegistration(MemoryRegistration&& other) noexcept = default;
  MemoryRegistration& operator=(MemoryRegistration&& other) = delete;
  ~MemoryRegistration();

 private:
  explicit MemoryRegistration(std::span<std::byte> memory) : memory_(memory) {}

  std::span<std::byte> memory_;
  std::vector<Device*> devices_;  // empty once moved from
};

}  // namespace moment::device
