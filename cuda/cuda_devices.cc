#include "cuda/cuda_devices.h"

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "cuda/cuda_device.h"
#include "cuda/driver.h"
#include "daemon/base/errors.h"

namespace moment::cuda {
namespace {

// "GPU-" and the 16 bytes in groups of 4, 2, 2, 2 and 6, as nvidia-smi writes them.
std::string UuidText(const CUuuid& uuid) {
  const std::string hex = absl::BytesToHexString(absl::string_view(uuid.bytes, sizeof(uuid.bytes)));
  return absl::StrCat("GPU-", hex.substr(0, 8), "-", hex.substr(8, 4), "-", hex.substr(12, 4), "-",
                      hex.substr(16, 4), "-", hex.substr(20));
}

absl::StatusOr<Gpu> Identify(const Driver& driver, CUdevice device) {
  CUuuid uuid = {};
  std::array<char, 256> model = {};
  MOMENT_RETURN_IF_ERROR(driver.Check(driver.cuDeviceGetUuid(&uuid, device), "get the UUID of",
                                      absl::StrCat("GPU ", device)));
  MOMENT_RETURN_IF_ERROR(
      driver.Check(driver.cuDeviceGetName(model.data(), static_cast<int>(model.size()) - 1, device),
                   "get the name of", absl::StrCat("GPU ", device)));
  return Gpu{UuidText(uuid), model.data()};
}

struct NumberedGpu {
  CUdevice device = 0;
  Gpu gpu;
};

absl::StatusOr<std::vector<NumberedGpu>> Enumerate(const Driver& driver) {
  int count = 0;
  MOMENT_RETURN_IF_ERROR(driver.Check(driver.cuDeviceGetCount(&count), "count", "the GPUs"));
  std::vector<NumberedGpu> gpus;
  for (int i = 0; i < count; ++i) {
    NumberedGpu numbered;
    MOMENT_RETURN_IF_ERROR(
        driver.Check(driver.cuDeviceGet(&numbered.device, i), "open", absl::StrCat("GPU ", i)));
    MOMENT_ASSIGN_OR_RETURN(numbered.gpu, Identify(driver, numbered.device));
    gpus.push_back(std::move(numbered));
  }
  if (gpus.empty()) {
    return absl::NotFoundError("the NVIDIA driver sees no GPU");
  }
  return gpus;
}

}  // namespace

absl::StatusOr<std::vector<Gpu>> FindGpus() {
  MOMENT_ASSIGN_OR_RETURN(const Driver* driver, Driver::Load());
  MOMENT_ASSIGN_OR_RETURN(const std::vector<NumberedGpu> numbered, Enumerate(*driver));
  std::vector<Gpu> gpus;
  for (const NumberedGpu& gpu : numbered) {
    gpus.push_back(gpu.gpu);
  }
  return gpus;
}

absl::StatusOr<std::unique_ptr<device::Device>> OpenGpu(const std::string& uuid,
                                                        const CudaDeviceOptions& options) {
  MOMENT_ASSIGN_OR_RETURN(const Driver* driver, Driver::Load());
  MOMENT_ASSIGN_OR_RETURN(const std::vector<NumberedGpu> numbered, Enumerate(*driver));
  for (const NumberedGpu& gpu : numbered) {
    if (gpu.gpu.uuid == uuid) {
      return CudaDevice::Create(*driver, gpu.device, gpu.gpu, options);
    }
  }
  return absl::NotFoundError(absl::StrCat("this process sees no GPU ", uuid));
}

}  // namespace moment::cuda
