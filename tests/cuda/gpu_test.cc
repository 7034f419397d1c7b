// What a CudaDevice promises beyond the conformance suite; on the first GPU.
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <vector>

#include "cuda/adam_reference.h"
#include "cuda/cuda_devices.h"
#include "cuda/owners.h"
#include "cuda/power_float.h"
#include "daemon/base/memory.h"
#include "tests/cuda/gpu_approximations.h"
#include "tests/cuda/gpu_probe.h"
#include "tests/device/chunk_model.h"
#include "tests/support/catch.h"

namespace moment::cuda {
namespace {

using device::ChunkBytes;
using device::ChunkCall;
using device::ChunkOp;
using device::ChunkShape;
using device::DeviceUnderTest;
using device::Profile;

constexpr uint64_t kMiB = uint64_t{1} << 20;

std::unique_ptr<device::Device> OpenFirst(const CudaDeviceOptions& options = {}) {
  const auto gpus = FindGpus();
  REQUIRE(gpus.ok());
  auto opened = OpenGpu(gpus->front().uuid, options);
  INFO(opened.status().ToString());
  REQUIRE(opened.ok());
  return *std::move(opened);
}

TEST_CASE("PowerFloat: has the bits of the GPU's powf", "[gpu]") {
  auto probe = GpuProbe::Create();
  REQUIRE(probe.ok());
  std::mt19937_64 random(5);
  std::uniform_real_distribution<double> unit;
  std::vector<float> bases;
  std::vector<float> exponents;
  for (int i = 0; i < 4'000'000; ++i) {
    bases.push_back(
        static_cast<float>(i % 2 == 0 ? unit(random) : 1 - std::pow(10.0, -7 * unit(random))));
    exponents.push_back(static_cast<float>(std::floor(std::pow(2.0, 24 * unit(random)))));
  }
  bases[0] = 0.0f;
  const auto powers = (*probe)->Powers(bases, exponents);
  REQUIRE(powers.ok());
  uint64_t differing = 0;
  uint64_t differing_with_exact = 0;
  for (size_t i = 0; i < bases.size(); ++i) {
    const auto differs = [&](const Approximations& approximations) {
      return PowerFloat(bases[i], exponents[i], approximations.reciprocal) != (*powers)[i] ? 1u
                                                                                           : 0u;
    };
    differing += differs(GpuApproximations());
    differing_with_exact += differs(ExactApproximations());
  }
  CHECK(differing == 0);
  CHECK(differing_with_exact < bases.size() / 1000);
}

TEST_CASE("OpenGpu: says which GPU it does not find", "[gpu]") {
  const auto opened = OpenGpu("GPU-00000000-0000-0000-0000-000000000000");
  CHECK(absl::IsNotFound(opened.status()));
  CHECK_THAT(std::string(opened.status().message()), test::ContainsSubstring("GPU-0000"));
}

TEST_CASE("OpenGpu: refuses slots that no chunk fits", "[gpu]") {
  const auto gpus = FindGpus();
  REQUIRE(gpus.ok());
  CHECK(absl::IsInvalidArgument(OpenGpu(gpus->front().uuid, {kMiB, 4}).status()));
  CHECK(absl::IsInvalidArgument(OpenGpu(gpus->front().uuid, {kMiB, 0}).status()));
}

TEST_CASE("CudaDevice: says what it takes of the GPU", "[gpu]") {
  CudaDeviceOptions options;
  options.staging_bytes = 64 * kMiB;
  options.slots = 4;
  const auto gpu = OpenFirst(options);
  const std::optional<device::DeviceMemoryUse> use = gpu->MemoryUse();
  REQUIRE(use.has_value());
  CHECK(use->staging_bytes == 64 * kMiB);
  CHECK(use->staging_used_bytes == 0);
  // Of the process's first device; a second one shares the context.
  INFO("context " << use->context_bytes.value_or(0));
  CHECK(use->context_bytes.value_or(0) < 2048 * kMiB);
}

TEST_CASE("SurveyGpus: knows the GPUs that FindGpus finds", "[gpu]") {
  const auto gpus = FindGpus();
  const auto survey = SurveyGpus();
  REQUIRE(gpus.ok());
  REQUIRE(survey.ok());
  REQUIRE(survey->gpus.size() == gpus->size());
  for (size_t i = 0; i < gpus->size(); ++i) {
    CHECK(survey->gpus[i].uuid == (*gpus)[i].uuid);
    CHECK(survey->gpus[i].model == (*gpus)[i].model);
  }
  CHECK_FALSE(survey->cuda_version.empty());
}

TEST_CASE("OpenGpu: a GPU without room for the staging memory", "[gpu]") {
  const auto gpus = FindGpus();
  REQUIRE(gpus.ok());
  const auto opened = OpenGpu(gpus->front().uuid, {uint64_t{1} << 50, 4});
  CHECK(absl::IsResourceExhausted(opened.status()));
}

DeviceUnderTest TorchCudaUnderTest() {
  DeviceUnderTest under_test;
  under_test.profile = Profile::kTorchCuda;
  under_test.reference = [](const device::Hyperparameters& h, uint64_t t, float gradient,
                            device::AdamElement element) {
    return AdamUpdate(Profile::kTorchCuda, h, t, gradient, element);
  };
  return under_test;
}

TEST_CASE("CudaDevice: chunks in registered memory have the bits of those in ordinary memory",
          "[gpu]") {
  std::mt19937_64 random(6);
  const auto gpu = OpenFirst({64 * kMiB, 4});
  const ChunkShape shape = device::RandomShape(random, 400'000, 50'000);
  ChunkBytes bytes = device::RandomBytes(random, shape);
  const ChunkBytes expected =
      device::Expected(TorchCudaUnderTest(), shape, ChunkOp::kAdam, false, bytes);
  auto memory = base::AlignedBuffer::Allocate(16 * kMiB);
  REQUIRE(memory.ok());
  REQUIRE(gpu->RegisterMemory(memory->span()).ok());
  // As another GPU of this process would; the memory stays pinned until both are done.
  REQUIRE(gpu->RegisterMemory(memory->span()).ok());
  gpu->UnregisterMemory(memory->span());
  ChunkCall call(shape, Profile::kTorchCuda, ChunkOp::kAdam, bytes);
  uint64_t offset = 0;
  for (int s = 0; s < device::kSegmentCount; ++s) {
    std::memcpy(memory->data() + offset, bytes.segments[s].data(), bytes.segments[s].size());
    call.work.in.data[s] = call.work.out.data[s] = memory->data() + offset;
    offset = base::RoundUp(offset + bytes.segments[s].size(), 4096);
  }
  gpu->Submit(&call.work);
  REQUIRE(call.Wait().ok());
  for (int s = 0; s < device::kSegmentCount; ++s) {
    std::memcpy(bytes.segments[s].data(), call.work.out.data[s], bytes.segments[s].size());
  }
  gpu->UnregisterMemory(memory->span());
  CHECK(bytes == expected);
  CHECK(gpu->RegisterMemory(memory->span()).ok());
  gpu->UnregisterMemory(memory->span());
}

// Copies of a chunk's gradients and parameters in the GPU's memory.
class OnGpu {
 public:
  OnGpu(const Context& context, ChunkBytes& bytes, ChunkCall& call) : context_(context) {
    auto stream = MakeStream(context);
    REQUIRE(stream.ok());
    stream_ = *std::move(stream);
    for (size_t i = 0; i < call.runs.size(); ++i) {
      call.runs[i].gradient = reinterpret_cast<const void*>(Upload(bytes.gradients[i], i % 3));
      call.runs[i].parameter = reinterpret_cast<void*>(Upload(bytes.parameters[i], i % 2));
      call.runs[i].gradient_place = call.runs[i].parameter_place = device::Place::kDevice;
    }
  }

  void Download(const ChunkCall& call, ChunkBytes& bytes) {
    const ContextGuard guard(context_);
    const Driver& driver = context_.driver();
    for (size_t i = 0; i < call.runs.size(); ++i) {
      const auto address = reinterpret_cast<CUdeviceptr>(call.runs[i].parameter);
      std::vector<std::byte>& parameter = bytes.parameters[i];
      if (!parameter.empty()) {
        REQUIRE(driver.cuMemcpyDtoHAsync(parameter.data(), address, parameter.size(),
                                         stream_.get()) == CUDA_SUCCESS);
      }
    }
    REQUIRE(driver.cuStreamSynchronize(stream_.get()) == CUDA_SUCCESS);
  }

 private:
  // At an odd element of its own allocation, as tensors lie in those of others.
  CUdeviceptr Upload(const std::vector<std::byte>& bytes, uint64_t elements_before) {
    const uint64_t before = elements_before * 4;
    auto memory = AllocateDeviceMemory(context_, before + bytes.size() + 16);
    REQUIRE(memory.ok());
    const CUdeviceptr address = memory->get() + before;
    memories_.push_back(*std::move(memory));
    const ContextGuard guard(context_);
    const Driver& driver = context_.driver();
    if (!bytes.empty()) {
      REQUIRE(driver.cuMemcpyHtoDAsync(address, bytes.data(), bytes.size(), stream_.get()) ==
              CUDA_SUCCESS);
    }
    REQUIRE(driver.cuStreamSynchronize(stream_.get()) == CUDA_SUCCESS);
    return address;
  }

  const Context& context_;
  Stream stream_;
  std::vector<DeviceMemory> memories_;
};

TEST_CASE("CudaDevice: gradients and parameters in the GPU's own memory are used where they lie",
          "[gpu]") {
  std::mt19937_64 random(7);
  auto probe = GpuProbe::Create();
  REQUIRE(probe.ok());
  const auto gpu = OpenFirst({8 * kMiB, 4});
  for (const ChunkOp op : {ChunkOp::kAdam, ChunkOp::kRefresh, ChunkOp::kMaterialize}) {
    INFO("op " << static_cast<int>(op));
    const ChunkShape shape = device::RandomShape(random, 300'000, 20'000);
    ChunkBytes bytes = device::RandomBytes(random, shape);
    const ChunkBytes expected = device::Expected(TorchCudaUnderTest(), shape, op, false, bytes);
    ChunkCall call(shape, Profile::kTorchCuda, op, bytes);
    OnGpu on_gpu((*probe)->context(), bytes, call);
    gpu->Submit(&call.work);
    REQUIRE(call.Wait().ok());
    on_gpu.Download(call, bytes);
    CHECK(bytes == expected);
  }
}

TEST_CASE("CudaDevice: refuses a misaligned address on the GPU", "[gpu]") {
  std::mt19937_64 random(8);
  const auto gpu = OpenFirst({8 * kMiB, 4});
  ChunkShape shape;
  shape.elements = 10;
  shape.hyperparameters.resize(1);
  device::Run run;
  run.count = 10;
  run.t = 1;
  shape.runs = {run};
  ChunkBytes bytes = device::RandomBytes(random, shape);
  ChunkCall call(shape, Profile::kTorchCuda, ChunkOp::kAdam, bytes);
  call.runs[0].gradient = reinterpret_cast<const void*>(uint64_t{0x1002});
  call.runs[0].gradient_place = device::Place::kDevice;
  gpu->Submit(&call.work);
  CHECK(absl::IsInvalidArgument(call.Wait()));
}

}  // namespace
}  // namespace moment::cuda
