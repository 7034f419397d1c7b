#pragma once

#include <cstdint>

// What tests do with the driver that fake_libcuda.cc stands in for: allocations in host memory,
// described and shared as the driver describes and shares those of a GPU.
extern "C" {

enum FakeCudaKind {
  FAKE_CUDA_LEGACY = 1,  // cudaMalloc
  FAKE_CUDA_VMM = 2,     // expandable segments: pieces of FAKE_CUDA_PIECE_BYTES with descriptors
  FAKE_CUDA_UNEXPORTABLE = 3,  // cuMemCreate without handle types
  FAKE_CUDA_MANAGED = 4,
};
#define FAKE_CUDA_PIECE_BYTES 65536
#define FAKE_CUDA_UUID "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f" /* of GPU 0; GPU 1 ends in 10 */

struct FakeCudaCounts {
  uint64_t handles;      // legacy handles that were given out
  uint64_t refusals;     // calls that ended with an error
  uint64_t exports;      // descriptors that were given out
  int64_t retained;      // VMM handles retained and not released
  uint64_t copies;       // bytes copied, to and fro
  int64_t pinned;        // registrations of host memory that are not ended
  uint64_t not_current;  // calls that need a current context and had none
};

void* fake_cuda_allocate(int kind, uint64_t length_bytes, int gpu);
void fake_cuda_free(void* address);
// Other memory at the same address, as after a free and an allocation of the same size.
void fake_cuda_replace(void* address);
// Another physical piece at this address of a VMM allocation.
void fake_cuda_replace_piece(void* address);
void fake_cuda_counts(FakeCudaCounts* counts);
}
