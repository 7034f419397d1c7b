// The conformance suite of tests/device on the first GPU.
#include <cstdlib>
#include <iostream>

#include "cuda/adam_reference.h"
#include "cuda/cuda_devices.h"
#include "tests/cuda/gpu_approximations.h"
#include "tests/device/device_under_test.h"

namespace moment::device {
namespace {

template <Profile Which>
AdamElement Reference(const Hyperparameters& hyperparameters, uint64_t t, float gradient,
                      AdamElement element) {
  return cuda::AdamUpdate(Which, hyperparameters, t, gradient, element, cuda::GpuApproximations());
}

template <uint64_t StagingBytes, int Slots>
std::shared_ptr<Device> Make() {
  auto gpus = cuda::FindGpus();
  auto device = gpus.ok() ? cuda::OpenGpu(gpus->front().uuid, {StagingBytes, Slots})
                          : absl::StatusOr<std::unique_ptr<Device>>(gpus.status());
  if (!device.ok()) {
    std::cerr << device.status() << std::endl;
    std::abort();
  }
  return *std::move(device);
}

}  // namespace

std::vector<DeviceUnderTest> DevicesUnderTest() {
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  return {
      {"GPU, torch-cuda", &Make<256 * kMiB, 4>, Profile::kTorchCuda,
       &Reference<Profile::kTorchCuda>},
      {"GPU, torch-cuda-foreach, small slots", &Make<3 * kMiB, 3>, Profile::kTorchCudaForeach,
       &Reference<Profile::kTorchCudaForeach>},
      {"GPU, torch-cuda-210, one slot", &Make<2 * kMiB, 1>, Profile::kTorchCuda210,
       &Reference<Profile::kTorchCuda210>},
      {"GPU, te", &Make<64 * kMiB, 2>, Profile::kTe, &Reference<Profile::kTe>},
  };
}

}  // namespace moment::device
