// A fault on the GPU, which ends this process's use of it: a program of its own.
#include <atomic>

#include "cuda/cuda_devices.h"
#include "tests/device/chunk_model.h"
#include "tests/support/catch.h"

namespace moment::cuda {
namespace {

using device::ChunkBytes;
using device::ChunkCall;
using device::ChunkOp;
using device::ChunkShape;
using device::Profile;

TEST_CASE("CudaDevice: after a fault of the GPU every chunk ends with UNAVAILABLE", "[gpu]") {
  const auto gpus = FindGpus();
  REQUIRE(gpus.ok());
  auto gpu = OpenGpu(gpus->front().uuid);
  REQUIRE(gpu.ok());
  std::atomic<int> losses{0};
  (*gpu)->OnLost([&losses](const absl::Status& status) { losses += absl::IsUnavailable(status); });
  ChunkShape shape;
  shape.elements = 100;
  shape.hyperparameters = {{1e-3, 0.9, 0.999, 1e-8, 0.01}};
  device::Run run;
  run.count = 100;
  run.t = 1;
  shape.runs = {run};
  std::mt19937_64 random(8);
  ChunkBytes bytes = device::RandomBytes(random, shape);
  {
    ChunkCall call(shape, Profile::kTorchCuda, ChunkOp::kAdam, bytes);
    call.runs[0].gradient = reinterpret_cast<const void*>(uint64_t{0x10});
    call.runs[0].gradient_place = device::Place::kDevice;
    (*gpu)->Submit(&call.work);
    const absl::Status status = call.Wait();
    INFO(status.ToString());
    CHECK(absl::IsUnavailable(status));
    CHECK_THAT(std::string(status.message()), test::ContainsSubstring("restart"));
  }
  for (int i = 0; i < 3; ++i) {
    ChunkCall call(shape, Profile::kTorchCuda, ChunkOp::kAdam, bytes);
    (*gpu)->Submit(&call.work);
    CHECK(absl::IsUnavailable(call.Wait()));
  }
  CHECK(losses == 1);
}

}  // namespace
}  // namespace moment::cuda
