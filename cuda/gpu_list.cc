#include "cuda/gpu_list.h"

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
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

}  // namespace

absl::StatusOr<std::vector<NumberedGpu>> ListGpus(const Driver& driver) {
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

absl::StatusOr<NumberedGpu> FindGpu(const Driver& driver, const std::string& uuid) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<NumberedGpu> gpus, ListGpus(driver));
  for (const NumberedGpu& gpu : gpus) {
    if (gpu.gpu.uuid == uuid) {
      return gpu;
    }
  }
  return absl::NotFoundError(absl::StrCat("this process sees no GPU ", uuid));
}

absl::StatusOr<std::vector<Gpu>> FindGpus() {
  MOMENT_ASSIGN_OR_RETURN(const Driver* driver, Driver::Load());
  MOMENT_ASSIGN_OR_RETURN(const std::vector<NumberedGpu> numbered, ListGpus(*driver));
  std::vector<Gpu> gpus;
  for (const NumberedGpu& gpu : numbered) {
    gpus.push_back(gpu.gpu);
  }
  return gpus;
}

}  // namespace moment::cuda
