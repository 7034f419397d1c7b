#include "client/src/gpu_pointer.h"

namespace moment::client {
namespace {

// CUpointer_attribute, CUmemorytype and CUmemAllocationHandleType of cuda.h.
constexpr int kMemoryType = 2;
constexpr int kBufferId = 7;
constexpr int kIsManaged = 8;
constexpr int kDeviceOrdinal = 9;
constexpr int kIsLegacyCudaIpcCapable = 10;
constexpr int kRangeStart = 11;
constexpr int kRangeSize = 12;
constexpr int kAllowedHandleTypes = 14;
constexpr unsigned kOnDevice = 2;
constexpr unsigned kPosixDescriptor = 1;

}  // namespace

GpuPointer InspectPointer(const CudaDriver& driver, CudaAddress address) {
  unsigned memory_type = 0;
  uint64_t buffer_id = 0;
  unsigned managed = 0;
  int ordinal = -1;
  unsigned legacy = 0;
  CudaAddress base = 0;
  size_t size = 0;
  uint64_t handle_types = 0;
  int attributes[] = {
      kMemoryType, kBufferId,  kIsManaged,         kDeviceOrdinal, kIsLegacyCudaIpcCapable,
      kRangeStart, kRangeSize, kAllowedHandleTypes};
  void* data[] = {&memory_type, &buffer_id, &managed, &ordinal,
                  &legacy,      &base,      &size,    &handle_types};
  GpuPointer pointer;
  const int result = driver.cuPointerGetAttributes(8, attributes, data, address);
  if (result != 0 || (memory_type != kOnDevice && managed == 0)) {
    return pointer;
  }
  pointer.ordinal = ordinal < 0 ? 0 : ordinal;
  pointer.base = base;
  pointer.length_bytes = size;
  pointer.buffer_id = buffer_id;
  if (managed != 0 || base == 0 || size == 0) {
    return pointer;
  }
  if (legacy != 0) {
    pointer.sharing = GpuSharing::kHandle;
  } else if ((handle_types & kPosixDescriptor) != 0) {
    // The attributes tell of all addresses that were reserved, this of the piece that is mapped.
    const absl::StatusOr<CudaContext> context = CudaContext::Retain(driver, pointer.ordinal);
    if (!context.ok()) {
      return pointer;
    }
    const CudaContext::Current current(*context);
    if (driver.cuMemGetAddressRange_v2(&base, &size, address) == 0 && size > 0) {
      pointer.sharing = GpuSharing::kDescriptors;
      pointer.base = base;
      pointer.length_bytes = size;
    }
  }
  return pointer;
}

}  // namespace moment::client
