// The conformance suite of tests/device on simulated GPUs: everything of a CudaDevice but CUDA.
#include "cuda/adam_reference.h"
#include "tests/cuda/simulated_gpu.h"
#include "tests/device/device_under_test.h"

namespace moment::device {
namespace {

template <Profile Which>
AdamElement Reference(const Hyperparameters& hyperparameters, uint64_t t, float gradient,
                      AdamElement element) {
  return cuda::AdamUpdate(Which, hyperparameters, t, gradient, element);
}

template <Profile Which, uint64_t SlotBytes, uint32_t MaxRuns>
std::shared_ptr<Device> Make() {
  return std::make_shared<cuda::SimulatedGpu>(Which, SlotBytes, MaxRuns);
}

}  // namespace

std::vector<DeviceUnderTest> DevicesUnderTest() {
  constexpr uint64_t kLarge = uint64_t{16} << 20;
  constexpr uint64_t kSmall = uint64_t{160} << 10;
  return {
      {"simulated GPU, torch-cuda", &Make<Profile::kTorchCuda, kLarge, 4096>, Profile::kTorchCuda,
       &Reference<Profile::kTorchCuda>},
      {"simulated GPU, small slots", &Make<Profile::kTorchCudaForeach, kSmall, 64>,
       Profile::kTorchCudaForeach, &Reference<Profile::kTorchCudaForeach>},
      {"simulated GPU, torch-cuda-210, few runs a piece", &Make<Profile::kTorchCuda210, kLarge, 3>,
       Profile::kTorchCuda210, &Reference<Profile::kTorchCuda210>},
      {"simulated GPU, te", &Make<Profile::kTe, kLarge, 4096>, Profile::kTe,
       &Reference<Profile::kTe>},
  };
}

}  // namespace moment::device
