#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/gpu_settings.h"
#include "daemon/device/device.h"

// The door of this folder: GPUs as Devices, without a type of CUDA's. The driver is loaded at run
// time, so that one program serves machines with and without GPUs.
namespace moment::cuda {

struct Gpu {
  std::string uuid;  // "GPU-...", the Device's name
  std::string model;
};

// The GPUs that this process sees, in the driver's order. NOT_FOUND without a driver or a GPU,
// UNIMPLEMENTED where this build has no kernels, FAILED_PRECONDITION for a driver that is too old
// for them; each says which, in a sentence.
absl::StatusOr<std::vector<Gpu>> FindGpus();

// The same GPUs with how they are set up; fails as FindGpus does. Makes no context.
absl::StatusOr<GpuSurvey> SurveyGpus();

struct CudaDeviceOptions {
  // Memory of the GPU that chunks pass through, cut into slots.
  uint64_t staging_bytes = uint64_t{256} << 20;
  int slots = 4;
};

// Makes the GPU's context and takes its staging memory. NOT_FOUND if there is no such GPU,
// INVALID_ARGUMENT if the slots are too small, RESOURCE_EXHAUSTED if the GPU is full.
absl::StatusOr<std::unique_ptr<device::Device>> OpenGpu(const std::string& uuid,
                                                        const CudaDeviceOptions& options = {});

}  // namespace moment::cuda
