#include "daemon/device/memory_registration.h"

#include "daemon/base/errors.h"

namespace moment::device {

absl::StatusOr<MemoryRegistration> MemoryRegistration::Create(const std::vector<Device*>& devices,
                                                              std::span<std::byte> memory) {
  MemoryRegistration registration(memory);
  for (Device* device : devices) {
    MOMENT_RETURN_IF_ERROR(base::WithContext(device->RegisterMemory(memory), device->name()));
    registration.devices_.push_back(device);
  }
  return registration;
}

MemoryRegistration::~MemoryRegistration() {
  for (Device* device : devices_) {
    device->UnregisterMemory(memory_);
  }
}

}  // namespace moment::device
