#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cuda/cuda_devices.h"
#include "cuda/driver.h"
#include "cuda/gpu_list.h"
#include "cuda/nvml.h"
#include "daemon/base/errors.h"

namespace moment::cuda {
namespace {

absl::StatusOr<int> Attribute(const Driver& driver, CUdevice device, CUdevice_attribute attribute,
                              const std::string& uuid) {
  int value = 0;
  MOMENT_RETURN_IF_ERROR(driver.Check(driver.cuDeviceGetAttribute(&value, attribute, device),
                                      "read an attribute of", uuid));
  return value;
}

// Drivers before 12.2 do not know the attribute; a client of MPS sees no difference there.
bool UsesMps(const Driver& driver, CUdevice device) {
  int value = 0;
  return driver.cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) ==
             CUDA_SUCCESS &&
         value != 0;
}

ComputeMode ComputeModeOf(int value) {
  switch (value) {
    case CU_COMPUTEMODE_PROHIBITED:
      return ComputeMode::kProhibited;
    case CU_COMPUTEMODE_EXCLUSIVE_PROCESS:
      return ComputeMode::kExclusiveProcess;
    default:
      return ComputeMode::kDefault;
  }
}

absl::StatusOr<GpuSettings> SettingsOf(const Driver& driver, const NumberedGpu& numbered) {
  const auto& [device, gpu] = numbered;
  GpuSettings settings;
  settings.uuid = gpu.uuid;
  settings.model = gpu.model;
  MOMENT_ASSIGN_OR_RETURN(const int mode,
                          Attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, gpu.uuid));
  settings.compute_mode = ComputeModeOf(mode);
  settings.mps = UsesMps(driver, device);
  // "NVIDIA H100 80GB HBM3 MIG 1g.10gb"
  settings.mig = absl::StrContains(gpu.model, " MIG ");
  MOMENT_ASSIGN_OR_RETURN(
      const int pins,
      Attribute(driver, device, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, gpu.uuid));
  // What confidential computing takes away, for drivers whose management library is out of reach.
  settings.confidential = pins == 0;
  return settings;
}

void AskNvml(GpuSurvey& survey) {
  const absl::StatusOr<const Nvml*> nvml = Nvml::Load();
  if (!nvml.ok()) {
    survey.nvml_reason = std::string(nvml.status().message());
    return;
  }
  survey.driver_version = (*nvml)->DriverVersion().value_or("");
  const bool confidential = (*nvml)->Confidential().value_or(false);
  for (GpuSettings& gpu : survey.gpus) {
    gpu.confidential = gpu.confidential || confidential;
  }
}

}  // namespace

absl::StatusOr<GpuSurvey> SurveyGpus() {
  MOMENT_ASSIGN_OR_RETURN(const Driver* driver, Driver::Load());
  MOMENT_ASSIGN_OR_RETURN(const std::vector<NumberedGpu> gpus, ListGpus(*driver));
  GpuSurvey survey;
  int version = 0;
  MOMENT_RETURN_IF_ERROR(
      driver->Check(driver->cuDriverGetVersion(&version), "get the version of", "the driver"));
  survey.cuda_version = absl::StrCat(version / 1000, ".", version % 1000 / 10);
  for (const NumberedGpu& gpu : gpus) {
    MOMENT_ASSIGN_OR_RETURN(GpuSettings settings, SettingsOf(*driver, gpu));
    survey.gpus.push_back(std::move(settings));
  }
  AskNvml(survey);
  return survey;
}

}  // namespace moment::cuda
