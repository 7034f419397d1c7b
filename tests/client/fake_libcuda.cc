// A libcuda.so.1 without a GPU: see fake_libcuda.h.
#include "tests/client/fake_libcuda.h"

#include <sys/eventfd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

namespace {

constexpr int kInvalidValue = 1;
constexpr int kInvalidContext = 201;

struct Allocation {
  int kind = 0;
  int gpu = 0;
  uint64_t length_bytes = 0;
  uint64_t buffer_id = 0;
  std::vector<uint64_t> pieces;
};

std::mutex mutex;
std::map<uintptr_t, Allocation>& allocations = *new std::map<uintptr_t, Allocation>;
FakeCudaCounts counts = {};
uint64_t next_id = 1;
thread_local int current_depth = 0;

std::map<uintptr_t, Allocation>::iterator Find(uint64_t address) {
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) {
    return allocations.end();
  }
  --found;
  return address < found->first + found->second.length_bytes ? found : allocations.end();
}

int Refuse(int error) {
  ++counts.refusals;
  return error;
}

bool HasContext() {
  counts.not_current += current_depth > 0 ? 0 : 1;
  return current_depth > 0;
}

void Describe(int attribute, uint64_t address, void* out) {
  const auto found = Find(address);
  if (found == allocations.end()) {
    return;
  }
  const auto& [base, allocation] = *found;
  const bool vmm = allocation.kind == FAKE_CUDA_VMM;
  switch (attribute) {
    case 2:
      *static_cast<unsigned*>(out) = 2;
      break;
    case 7:
      *static_cast<uint64_t*>(out) = allocation.buffer_id;
      break;
    case 8:
      *static_cast<unsigned*>(out) = allocation.kind == FAKE_CUDA_MANAGED;
      break;
    case 9:
      *static_cast<int*>(out) = allocation.gpu;
      break;
    case 10:
      *static_cast<unsigned*>(out) = allocation.kind == FAKE_CUDA_LEGACY;
      break;
    case 11:
      *static_cast<uint64_t*>(out) = base;
      break;
    case 12:
      *static_cast<size_t*>(out) = allocation.length_bytes;
      break;
    case 14:
      *static_cast<uint64_t*>(out) = vmm;
      break;
    default:
      break;
  }
}

}  // namespace

extern "C" {

void* fake_cuda_allocate(int kind, uint64_t length_bytes, int gpu) {
  const std::lock_guard<std::mutex> lock(mutex);
  void* const address = std::aligned_alloc(FAKE_CUDA_PIECE_BYTES, length_bytes);
  Allocation& made = allocations[reinterpret_cast<uintptr_t>(address)];
  made = {kind, gpu, length_bytes, next_id++, {}};
  for (uint64_t at = 0; kind == FAKE_CUDA_VMM && at < length_bytes; at += FAKE_CUDA_PIECE_BYTES) {
    made.pieces.push_back(next_id++);
  }
  return address;
}

void fake_cuda_free(void* address) {
  const std::lock_guard<std::mutex> lock(mutex);
  allocations.erase(reinterpret_cast<uintptr_t>(address));
  std::free(address);
}

void fake_cuda_replace(void* address) {
  const std::lock_guard<std::mutex> lock(mutex);
  allocations[reinterpret_cast<uintptr_t>(address)].buffer_id = next_id++;
}

void fake_cuda_replace_piece(void* address) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = Find(reinterpret_cast<uintptr_t>(address));
  found->second
      .pieces[(reinterpret_cast<uintptr_t>(address) - found->first) / FAKE_CUDA_PIECE_BYTES] =
      next_id++;
}

void fake_cuda_counts(FakeCudaCounts* out) {
  const std::lock_guard<std::mutex> lock(mutex);
  *out = counts;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == kInvalidValue ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_INVALID_CONTEXT";
  return 0;
}

int cuPointerGetAttributes(unsigned count, int* attributes, void** data, uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex);
  for (unsigned i = 0; i < count; ++i) {
    Describe(attributes[i], address, data[i]);
  }
  return 0;
}

int cuMemGetAddressRange_v2(uint64_t* base, size_t* length_bytes, uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = Find(address);
  if (!HasContext()) {
    return Refuse(kInvalidContext);
  }
  if (found == allocations.end()) {
    return Refuse(kInvalidValue);
  }
  const bool vmm = found->second.kind == FAKE_CUDA_VMM;
  const uint64_t piece = (address - found->first) / FAKE_CUDA_PIECE_BYTES;
  *base = found->first + (vmm ? piece * FAKE_CUDA_PIECE_BYTES : 0);
  *length_bytes = vmm ? FAKE_CUDA_PIECE_BYTES : found->second.length_bytes;
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return 0;
}

int cuDeviceGetUuid_v2(void* uuid, int device) {
  for (int i = 0; i < 16; ++i) {
    static_cast<unsigned char*>(uuid)[i] = static_cast<unsigned char>(i);
  }
  static_cast<unsigned char*>(uuid)[15] = static_cast<unsigned char>(15 + device);
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int) {
  *context = &mutex;
  return 0;
}
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxPushCurrent_v2(void*) {
  ++current_depth;
  return 0;
}
int cuCtxPopCurrent_v2(void**) {
  --current_depth;
  return 0;
}

int cuIpcGetMemHandle(void* handle, uint64_t address) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = Find(address);
  if (!HasContext()) {
    return Refuse(kInvalidContext);
  }
  if (found == allocations.end() || found->second.kind != FAKE_CUDA_LEGACY) {
    return Refuse(kInvalidValue);
  }
  std::memset(handle, 0, 64);
  std::memcpy(handle, &found->first, sizeof(found->first));
  ++counts.handles;
  return 0;
}

int cuMemRetainAllocationHandle(uint64_t* handle, void* address) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = Find(reinterpret_cast<uintptr_t>(address));
  if (found == allocations.end() || found->second.kind != FAKE_CUDA_VMM) {
    return Refuse(kInvalidValue);
  }
  *handle =
      found->second
          .pieces[(reinterpret_cast<uintptr_t>(address) - found->first) / FAKE_CUDA_PIECE_BYTES];
  ++counts.retained;
  return 0;
}

int cuMemRelease(uint64_t) {
  const std::lock_guard<std::mutex> lock(mutex);
  --counts.retained;
  return 0;
}

int cuMemExportToShareableHandle(void* shareable, uint64_t, int, unsigned long long) {
  const std::lock_guard<std::mutex> lock(mutex);
  *static_cast<int*>(shareable) = ::eventfd(0, EFD_CLOEXEC);
  ++counts.exports;
  return 0;
}

int cuMemHostRegister_v2(void*, size_t, unsigned) {
  const std::lock_guard<std::mutex> lock(mutex);
  ++counts.pinned;
  return HasContext() ? 0 : Refuse(kInvalidContext);
}
int cuMemHostUnregister(void*) {
  const std::lock_guard<std::mutex> lock(mutex);
  --counts.pinned;
  return 0;
}
int cuStreamCreate(void** stream, unsigned) {
  *stream = &counts;
  return 0;
}
int cuStreamDestroy_v2(void*) { return 0; }
int cuStreamSynchronize(void*) { return 0; }

int cuMemcpyAsync(uint64_t to, uint64_t from, size_t length_bytes, void*) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!HasContext()) {
    return Refuse(kInvalidContext);
  }
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), length_bytes);
  counts.copies += length_bytes;
  return 0;
}
}
