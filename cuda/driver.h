#pragma once

#include <cuda.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// The functions of the CUDA driver that this folder calls. cuda.h gives some names a version by a
// macro, so a name is expanded before it becomes a member or a string.
#define MOMENT_FOR_EACH_DRIVER_FUNCTION(use) \
  use(cuInit);                               \
  use(cuDriverGetVersion);                   \
  use(cuDeviceGetCount);                     \
  use(cuDeviceGet);                          \
  use(cuDeviceGetName);                      \
  use(cuDeviceGetUuid);                      \
  use(cuDeviceGetAttribute);                 \
  use(cuDevicePrimaryCtxRetain);             \
  use(cuDevicePrimaryCtxRelease);            \
  use(cuCtxPushCurrent);                     \
  use(cuCtxPopCurrent);                      \
  use(cuStreamCreate);                       \
  use(cuStreamDestroy);                      \
  use(cuStreamSynchronize);                  \
  use(cuEventCreate);                        \
  use(cuEventDestroy);                       \
  use(cuEventRecord);                        \
  use(cuEventSynchronize);                   \
  use(cuEventElapsedTime);                   \
  use(cuModuleLoadData);                     \
  use(cuModuleUnload);                       \
  use(cuModuleGetFunction);                  \
  use(cuLaunchKernel);                       \
  use(cuMemAlloc);                           \
  use(cuMemFree);                            \
  use(cuMemHostAlloc);                       \
  use(cuMemFreeHost);                        \
  use(cuMemHostRegister);                    \
  use(cuMemHostUnregister);                  \
  use(cuMemGetAddressRange);                 \
  use(cuIpcOpenMemHandle);                   \
  use(cuIpcCloseMemHandle);                  \
  use(cuMemImportFromShareableHandle);       \
  use(cuMemAddressReserve);                  \
  use(cuMemAddressFree);                     \
  use(cuMemMap);                             \
  use(cuMemUnmap);                           \
  use(cuMemSetAccess);                       \
  use(cuMemRelease);                         \
  use(cuIpcGetMemHandle);                    \
  use(cuMemCreate);                          \
  use(cuMemExportToShareableHandle);         \
  use(cuMemcpyHtoDAsync);                    \
  use(cuMemcpyDtoHAsync);                    \
  use(cuMemsetD8Async);                      \
  use(cuGetErrorName);                       \
  use(cuGetErrorString)

namespace moment::cuda {

// libcuda.so.1, loaded at run time and initialised. Lives for ever: it cannot be unloaded safely.
struct Driver {
#define MOMENT_DRIVER_MEMBER(name) decltype(&::name) name = nullptr
  MOMENT_FOR_EACH_DRIVER_FUNCTION(MOMENT_DRIVER_MEMBER);
#undef MOMENT_DRIVER_MEMBER

  // NOT_FOUND without the library, FAILED_PRECONDITION for one too old for this build's kernels, or
  // that does not initialise. The first call decides for the process.
  static absl::StatusOr<const Driver*> Load();

  // OK, or what was done, to which object, and the driver's own words. UNAVAILABLE if the GPU is
  // lost for this process (IsLost), RESOURCE_EXHAUSTED without memory, INTERNAL otherwise.
  absl::Status Check(CUresult result, absl::string_view what, absl::string_view object) const;
};

// Whether no call of this process will work on the GPU any more: a fault in a kernel, or of the
// machine. Only a new process helps.
bool IsLost(CUresult result);

}  // namespace moment::cuda
