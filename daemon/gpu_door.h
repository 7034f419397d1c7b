#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cuda/cuda_devices.h"
#include "daemon/device/device.h"

namespace moment {

// The way to the GPUs; tests put their own in its place.
struct GpuDoor {
  std::function<absl::StatusOr<cuda::GpuSurvey>()> survey = cuda::SurveyGpus;
  std::function<absl::StatusOr<std::unique_ptr<device::Device>>(const std::string& uuid,
                                                                const cuda::CudaDeviceOptions&)>
      open = cuda::OpenGpu;
};

}  // namespace moment
