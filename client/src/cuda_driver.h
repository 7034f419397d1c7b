#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moment::client {

using CudaAddress = unsigned long long;  // CUdeviceptr

// The functions of the CUDA driver that the client calls, under the driver's names, as the driver's
// documentation declares them (handles as void*, enums as int). Never CUDA's runtime: an error of
// ours would stay behind in it as the trainer's last error.
struct CudaDriver {
  int (*cuGetErrorName)(int error, const char** name) = nullptr;
  int (*cuPointerGetAttributes)(unsigned count, int* attributes, void** data,
                                CudaAddress address) = nullptr;
  int (*cuMemGetAddressRange_v2)(CudaAddress* base, size_t* length_bytes,
                                 CudaAddress address) = nullptr;
  int (*cuDeviceGet)(int* device, int ordinal) = nullptr;
  int (*cuDeviceGetUuid_v2)(void* uuid, int device) = nullptr;
  int (*cuDevicePrimaryCtxRetain)(void** context, int device) = nullptr;
  int (*cuDevicePrimaryCtxRelease_v2)(int device) = nullptr;
  int (*cuCtxPushCurrent_v2)(void* context) = nullptr;
  int (*cuCtxPopCurrent_v2)(void** context) = nullptr;
  int (*cuIpcGetMemHandle)(void* handle, CudaAddress address) = nullptr;
  int (*cuMemRetainAllocationHandle)(uint64_t* handle, void* address) = nullptr;
  int (*cuMemRelease)(uint64_t handle) = nullptr;
  int (*cuMemExportToShareableHandle)(void* shareable, uint64_t handle, int type,
                                      unsigned long long flags) = nullptr;
  int (*cuMemHostRegister_v2)(void* address, size_t length_bytes, unsigned flags) = nullptr;
  int (*cuMemHostUnregister)(void* address) = nullptr;
  int (*cuStreamCreate)(void** stream, unsigned flags) = nullptr;
  int (*cuStreamDestroy_v2)(void* stream) = nullptr;
  int (*cuStreamSynchronize)(void* stream) = nullptr;
  int (*cuMemcpyAsync)(CudaAddress to, CudaAddress from, size_t length_bytes,
                       void* stream) = nullptr;

  // The driver if this process has loaded it: memory on a GPU comes from nowhere else. Null without
  // it, or if it lacks one of the functions.
  static const CudaDriver* Loaded();

  // OK, or INTERNAL: what failed, and the driver's name of the error.
  absl::Status Check(int result, const char* what) const;
};

// The primary context of a GPU, for as long as this lives.
class CudaContext {
 public:
  static absl::StatusOr<CudaContext> Retain(const CudaDriver& driver, int ordinal);
  CudaContext(CudaContext&& other) noexcept;
  CudaContext& operator=(CudaContext&&) = delete;
  ~CudaContext();

  void* get() const { return context_; }
  // "GPU-...", as the daemon names it.
  absl::StatusOr<std::string> Uuid() const;

  // The calling thread's current context for a scope.
  class Current {
   public:
    explicit Current(const CudaContext& context) : driver_(*context.driver_) {
      driver_.cuCtxPushCurrent_v2(context.context_);
    }
    ~Current() {
      void* popped = nullptr;
      driver_.cuCtxPopCurrent_v2(&popped);
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;

   private:
    const CudaDriver& driver_;
  };

 private:
  CudaContext(const CudaDriver* driver, int device, void* context)
      : driver_(driver), device_(device), context_(context) {}

  const CudaDriver* driver_;
  int device_;
  void* context_;
};

}  // namespace moment::client
