#pragma once

#include <cstdint>

#include "client/src/cuda_driver.h"

namespace moment::client {

// How memory on a GPU can reach another process.
enum class GpuSharing : uint8_t {
  kHandle,       // a legacy IPC handle of the allocation
  kDescriptors,  // VMM allocations with descriptors
  kCopy,         // not at all: its bytes are copied through the ring
};

// What the driver says about an address.
struct GpuPointer {
  int ordinal = -1;  // of the GPU as this process counts them; -1: not on a GPU
  GpuSharing sharing = GpuSharing::kCopy;
  CudaAddress base = 0;  // of the allocation; of expandable segments: of the piece
  uint64_t length_bytes = 0;
  uint64_t buffer_id = 0;  // another allocation at the same address has another
};

// Asks the driver anew each time: an allocator may have replaced what was there. Never fails: what
// the driver does not know is not on a GPU.
GpuPointer InspectPointer(const CudaDriver& driver, CudaAddress address);

}  // namespace moment::client
