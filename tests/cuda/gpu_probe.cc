#include "tests/cuda/gpu_probe.h"

#include <utility>

#include "cuda/driver.h"
#include "daemon/base/errors.h"

extern "C" const char moment_kernels_probe[];

namespace moment::cuda {
namespace {

constexpr uint32_t kThreads = 256;

}  // namespace

absl::StatusOr<std::unique_ptr<GpuProbe>> GpuProbe::Create() {
  MOMENT_ASSIGN_OR_RETURN(const Driver* driver, Driver::Load());
  CUdevice gpu = 0;
  MOMENT_RETURN_IF_ERROR(driver->Check(driver->cuDeviceGet(&gpu, 0), "open", "GPU 0"));
  MOMENT_ASSIGN_OR_RETURN(Context context, Context::Retain(*driver, gpu));
  std::unique_ptr<GpuProbe> probe(new GpuProbe(std::move(context)));
  MOMENT_ASSIGN_OR_RETURN(probe->module_,
                          LoadModule(probe->context_, moment_kernels_probe, "the probe"));
  MOMENT_ASSIGN_OR_RETURN(probe->stream_, MakeStream(probe->context_));
  return probe;
}

absl::Status GpuProbe::Launch(const char* kernel, uint32_t count, void** arguments) {
  const Driver& driver = context_.driver();
  const ContextGuard guard(context_);
  CUfunction function = nullptr;
  MOMENT_RETURN_IF_ERROR(
      driver.Check(driver.cuModuleGetFunction(&function, module_.get(), kernel), "find", kernel));
  return driver.Check(driver.cuLaunchKernel(function, (count + kThreads - 1) / kThreads, 1, 1,
                                            kThreads, 1, 1, 0, stream_.get(), arguments, nullptr),
                      "launch", kernel);
}

absl::StatusOr<std::vector<float>> GpuProbe::Download(const DeviceMemory& memory, uint32_t count) {
  const Driver& driver = context_.driver();
  const ContextGuard guard(context_);
  std::vector<float> values(count);
  MOMENT_RETURN_IF_ERROR(driver.Check(
      driver.cuMemcpyDtoHAsync(values.data(), memory.get(), count * sizeof(float), stream_.get()),
      "copy from", "the GPU"));
  MOMENT_RETURN_IF_ERROR(
      driver.Check(driver.cuStreamSynchronize(stream_.get()), "wait for", "the GPU"));
  return values;
}

absl::StatusOr<std::vector<float>> GpuProbe::OfBits(const char* kernel, uint32_t first_bits,
                                                    uint32_t count) {
  MOMENT_ASSIGN_OR_RETURN(const DeviceMemory results,
                          AllocateDeviceMemory(context_, uint64_t{count} * sizeof(float)));
  CUdeviceptr address = results.get();
  void* arguments[] = {&address, &first_bits, &count};
  MOMENT_RETURN_IF_ERROR(Launch(kernel, count, arguments));
  return Download(results, count);
}

absl::StatusOr<std::vector<float>> GpuProbe::Reciprocals(uint32_t first_bits, uint32_t count) {
  return OfBits("moment_probe_reciprocal", first_bits, count);
}

absl::StatusOr<std::vector<float>> GpuProbe::SquareRoots(uint32_t first_bits, uint32_t count) {
  return OfBits("moment_probe_square_root", first_bits, count);
}

absl::StatusOr<std::vector<float>> GpuProbe::Powers(std::span<const float> bases,
                                                    std::span<const float> exponents) {
  const Driver& driver = context_.driver();
  auto count = static_cast<uint32_t>(bases.size());
  const uint64_t bytes = uint64_t{count} * sizeof(float);
  MOMENT_ASSIGN_OR_RETURN(const DeviceMemory memory, AllocateDeviceMemory(context_, 3 * bytes));
  CUdeviceptr base = memory.get();
  CUdeviceptr exponent = base + bytes;
  CUdeviceptr result = exponent + bytes;
  {
    const ContextGuard guard(context_);
    MOMENT_RETURN_IF_ERROR(driver.Check(
        driver.cuMemcpyHtoDAsync(base, bases.data(), bytes, stream_.get()), "copy to", "the GPU"));
    MOMENT_RETURN_IF_ERROR(
        driver.Check(driver.cuMemcpyHtoDAsync(exponent, exponents.data(), bytes, stream_.get()),
                     "copy to", "the GPU"));
  }
  void* arguments[] = {&base, &exponent, &result, &count};
  MOMENT_RETURN_IF_ERROR(Launch("moment_probe_power", count, arguments));
  const ContextGuard guard(context_);
  std::vector<float> values(count);
  MOMENT_RETURN_IF_ERROR(
      driver.Check(driver.cuMemcpyDtoHAsync(values.data(), result, bytes, stream_.get()),
                   "copy from", "the GPU"));
  MOMENT_RETURN_IF_ERROR(
      driver.Check(driver.cuStreamSynchronize(stream_.get()), "wait for", "the GPU"));
  return values;
}

}  // namespace moment::cuda
