#include "client/src/cuda_driver.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "client/src/errors.h"

namespace moment::client {
namespace {

constexpr size_t kUuidBytes = 16;

template <typename Function>
bool Resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

bool ResolveAll(void* library, CudaDriver& driver) {
#define MOMENT_RESOLVE(name) Resolve(library, #name, driver.name)
  return MOMENT_RESOLVE(cuGetErrorName) && MOMENT_RESOLVE(cuPointerGetAttributes) &&
         MOMENT_RESOLVE(cuMemGetAddressRange_v2) && MOMENT_RESOLVE(cuDeviceGet) &&
         MOMENT_RESOLVE(cuDeviceGetUuid_v2) && MOMENT_RESOLVE(cuDevicePrimaryCtxRetain) &&
         MOMENT_RESOLVE(cuDevicePrimaryCtxRelease_v2) && MOMENT_RESOLVE(cuCtxPushCurrent_v2) &&
         MOMENT_RESOLVE(cuCtxPopCurrent_v2) && MOMENT_RESOLVE(cuIpcGetMemHandle) &&
         MOMENT_RESOLVE(cuMemRetainAllocationHandle) && MOMENT_RESOLVE(cuMemRelease) &&
         MOMENT_RESOLVE(cuMemExportToShareableHandle) && MOMENT_RESOLVE(cuMemHostRegister_v2) &&
         MOMENT_RESOLVE(cuMemHostUnregister) && MOMENT_RESOLVE(cuStreamCreate) &&
         MOMENT_RESOLVE(cuStreamDestroy_v2) && MOMENT_RESOLVE(cuStreamSynchronize) &&
         MOMENT_RESOLVE(cuMemcpyAsync);
#undef MOMENT_RESOLVE
}

}  // namespace

const CudaDriver* CudaDriver::Loaded() {
  static absl::Mutex& mutex = *new absl::Mutex;
  static const CudaDriver* loaded = nullptr;
  absl::MutexLock lock(&mutex);
  if (loaded != nullptr) {
    return loaded;
  }
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  CudaDriver driver;
  if (library == nullptr || !ResolveAll(library, driver)) {
    return nullptr;
  }
  loaded = new CudaDriver(driver);  // the driver is never unloaded
  return loaded;
}

absl::Status CudaDriver::Check(int result, const char* what) const {
  if (result == 0) {
    return absl::OkStatus();
  }
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  return absl::InternalError(absl::StrCat("the CUDA driver cannot ", what, ": error ", result, " (",
                                          name == nullptr ? "unknown" : name, ")"));
}

absl::StatusOr<CudaContext> CudaContext::Retain(const CudaDriver& driver, int ordinal) {
  int device = 0;
  void* context = nullptr;
  MOMENT_CLIENT_RETURN_IF_ERROR(
      driver.Check(driver.cuDeviceGet(&device, ordinal), "find the GPU of a tensor"));
  MOMENT_CLIENT_RETURN_IF_ERROR(driver.Check(driver.cuDevicePrimaryCtxRetain(&context, device),
                                             "use the context of a tensor's GPU"));
  return CudaContext(&driver, device, context);
}

CudaContext::CudaContext(CudaContext&& other) noexcept
    : driver_(other.driver_),
      device_(other.device_),
      context_(std::exchange(other.context_, nullptr)) {}

CudaContext::~CudaContext() {
  if (context_ != nullptr) {
    driver_->cuDevicePrimaryCtxRelease_v2(device_);
  }
}

absl::StatusOr<std::string> CudaContext::Uuid() const {
  std::array<char, kUuidBytes> bytes = {};
  MOMENT_CLIENT_RETURN_IF_ERROR(
      driver_->Check(driver_->cuDeviceGetUuid_v2(bytes.data(), device_), "name a tensor's GPU"));
  const std::string hex = absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

}  // namespace moment::client
