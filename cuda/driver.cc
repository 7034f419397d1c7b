#include "cuda/driver.h"

#include <dlfcn.h>

#include <memory>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::cuda {
namespace {

// Of CUDA's version numbers: 13000 is 13.0.
constexpr int kVersionsPerMajor = 1000;

absl::Status Resolve(void* library, Driver& driver) {
#define MOMENT_TEXT(name) #name
#define MOMENT_RESOLVE(name)                                                                       \
  do {                                                                                             \
    driver.name = reinterpret_cast<decltype(driver.name)>(::dlsym(library, MOMENT_TEXT(name)));    \
    if (driver.name == nullptr) {                                                                  \
      return absl::FailedPreconditionError(absl::StrCat(                                           \
          "libcuda.so.1 has no function ", MOMENT_TEXT(name), ": install a newer NVIDIA driver")); \
    }                                                                                              \
  } while (false)
  MOMENT_FOR_EACH_DRIVER_FUNCTION(MOMENT_RESOLVE);
#undef MOMENT_RESOLVE
#undef MOMENT_TEXT
  return absl::OkStatus();
}

absl::Status CheckVersion(const Driver& driver) {
  int version = 0;
  MOMENT_RETURN_IF_ERROR(
      driver.Check(driver.cuDriverGetVersion(&version), "get the version of", "libcuda.so.1"));
  if (version / kVersionsPerMajor < CUDA_VERSION / kVersionsPerMajor) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the NVIDIA driver supports CUDA ", version / kVersionsPerMajor, " and this build needs ",
        CUDA_VERSION / kVersionsPerMajor, ": install a newer driver"));
  }
  return absl::OkStatus();
}

absl::Status Initialise(const Driver& driver) {
  const CUresult result = driver.cuInit(0);
  if (result == CUDA_ERROR_NO_DEVICE) {
    return absl::NotFoundError("the NVIDIA driver sees no GPU");
  }
  MOMENT_RETURN_IF_ERROR(driver.Check(result, "initialise", "the NVIDIA driver"));
  return CheckVersion(driver);
}

absl::StatusOr<const Driver*> LoadOnce() {
  void* library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("no NVIDIA driver: ", ::dlerror()));
  }
  auto driver = std::make_unique<Driver>();
  MOMENT_RETURN_IF_ERROR(Resolve(library, *driver));
  MOMENT_RETURN_IF_ERROR(Initialise(*driver));
  return driver.release();
}

}  // namespace

absl::StatusOr<const Driver*> Driver::Load() {
  static const absl::StatusOr<const Driver*>& driver =
      *new absl::StatusOr<const Driver*>(LoadOnce());
  return driver;
}

absl::Status Driver::Check(CUresult result, absl::string_view what,
                           absl::string_view object) const {
  if (result == CUDA_SUCCESS) {
    return absl::OkStatus();
  }
  const char* name = "unknown error";
  const char* text = "";
  cuGetErrorName(result, &name);
  cuGetErrorString(result, &text);
  const std::string message =
      absl::StrCat("cannot ", what, " ", object, ": ", text, " (", name, ")");
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    return absl::ResourceExhaustedError(message);
  }
  if (IsLost(result)) {
    return absl::UnavailableError(
        absl::StrCat(message, "; the GPU is lost for this process, restart it"));
  }
  return absl::InternalError(message);
}

bool IsLost(CUresult result) {
  switch (result) {
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
    // What a GPU that fell off its bus leaves behind; it has no other meaning that helps.
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

}  // namespace moment::cuda
