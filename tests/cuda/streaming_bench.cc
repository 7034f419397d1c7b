// Chunks in pinned memory through a CudaDevice, beside what the copy engines reach alone.
//
//   cuda_streaming_bench [staging MiB] [slots]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/synchronization/mutex.h"
#include "cuda/cuda_devices.h"
#include "cuda/owners.h"
#include "daemon/base/memory.h"
#include "tests/cuda/gpu_probe.h"

namespace moment::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kChunkBytes = 48 * kMiB;  // of all segments, fp32
constexpr uint64_t kElements = kChunkBytes / 12;
constexpr uint64_t kChunks = 64;
constexpr int kRepeats = 7;

template <typename T>
T OrDie(absl::StatusOr<T> value) {
  if (!value.ok()) {
    std::cerr << value.status() << std::endl;
    std::exit(1);
  }
  return *std::move(value);
}

void CheckCuda(CUresult result) {
  if (result != CUDA_SUCCESS) {
    std::cerr << "CUDA error " << result << std::endl;
    std::exit(1);
  }
}

double Seconds(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Median, least and most of the rates.
void Print(const char* what, std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  std::printf("%-58s %7.1f GB/s (%.1f to %.1f)\n", what, rates[rates.size() / 2], rates.front(),
              rates.back());
}

struct Pinned {
  base::AlignedBuffer memory;
  device::Device& gpu;

  Pinned(device::Device& device, uint64_t bytes)
      : memory(OrDie(base::AlignedBuffer::Allocate(bytes))), gpu(device) {
    std::fill(memory.data(), memory.data() + bytes, std::byte{0x3c});
    if (const absl::Status status = gpu.RegisterMemory(memory.span()); !status.ok()) {
      std::cerr << status << std::endl;
      std::exit(1);
    }
  }
  ~Pinned() { gpu.UnregisterMemory(memory.span()); }
};

// Both directions at once, both counted.
double DuplexRate(const Context& context, Pinned& host) {
  const ContextGuard guard(context);
  const Driver& driver = context.driver();
  const Stream in = OrDie(MakeStream(context));
  const Stream out = OrDie(MakeStream(context));
  const DeviceMemory memory = OrDie(AllocateDeviceMemory(context, 2 * kChunkBytes));
  std::byte* const to = host.memory.data() + host.memory.size() / 2;
  const uint64_t copies = host.memory.size() / 2 / kChunkBytes;
  const Clock::time_point begin = Clock::now();
  for (uint64_t i = 0; i < copies; ++i) {
    CheckCuda(driver.cuMemcpyHtoDAsync(memory.get(), host.memory.data() + i * kChunkBytes,
                                       kChunkBytes, in.get()));
    CheckCuda(driver.cuMemcpyDtoHAsync(to + i * kChunkBytes, memory.get() + kChunkBytes,
                                       kChunkBytes, out.get()));
  }
  CheckCuda(driver.cuStreamSynchronize(in.get()));
  CheckCuda(driver.cuStreamSynchronize(out.get()));
  return 2.0 * static_cast<double>(copies * kChunkBytes) / Seconds(begin) / 1e9;
}

struct Chunk {
  device::Run run;
  device::ChunkWork work;
};

class Streaming {
 public:
  Streaming(device::Device& gpu, Pinned& state, Pinned& slots, CUdeviceptr device_slot)
      : gpu_(gpu), chunks_(kChunks) {
    hyperparameters_ = {1e-3, 0.9, 0.999, 1e-8, 0.01};
    for (uint64_t i = 0; i < kChunks; ++i) {
      Chunk& chunk = chunks_[i];
      chunk.run.count = kElements;
      chunk.run.t = 3;
      std::byte* const slot = slots.memory.data() + i % 4 * (2 * kElements * 4);
      chunk.run.gradient = slot;
      chunk.run.parameter = slot + kElements * 4;
      if (device_slot != 0) {
        chunk.run.gradient = reinterpret_cast<const void*>(device_slot);
        chunk.run.parameter = reinterpret_cast<void*>(device_slot + kElements * 4);
        chunk.run.gradient_place = chunk.run.parameter_place = device::Place::kDevice;
      }
      chunk.work.profile = device::Profile::kTorchCuda;
      chunk.work.elements = kElements;
      for (int s = 0; s < device::kSegmentCount; ++s) {
        chunk.work.in.data[s] = chunk.work.out.data[s] =
            state.memory.data() + i * kChunkBytes + static_cast<uint64_t>(s) * kElements * 4;
      }
      chunk.work.runs = {&chunk.run, 1};
      chunk.work.hyperparameters = {&hyperparameters_, 1};
      chunk.work.context = this;
      chunk.work.done = [](device::ChunkWork* work, absl::Status status) noexcept {
        static_cast<Streaming*>(work->context)->Done(status);
      };
    }
  }

  // Seconds of one pass over all chunks.
  double Pass() {
    const Clock::time_point begin = Clock::now();
    {
      absl::MutexLock lock(&mutex_);
      left_ = kChunks;
    }
    for (Chunk& chunk : chunks_) {
      gpu_.Submit(&chunk.work);
    }
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](uint64_t* left) { return *left == 0; }, &left_));
    return Seconds(begin);
  }

  double KernelSeconds() const {
    double seconds = 0;
    for (const Chunk& chunk : chunks_) {
      seconds += chunk.work.seconds;
    }
    return seconds;
  }

 private:
  void Done(const absl::Status& status) {
    if (!status.ok()) {
      std::cerr << status << std::endl;
      std::abort();
    }
    absl::MutexLock lock(&mutex_);
    --left_;
  }

  device::Device& gpu_;
  device::Hyperparameters hyperparameters_;
  std::vector<Chunk> chunks_;
  absl::Mutex mutex_;
  uint64_t left_ = 0;
};

void Measure(const char* what, Streaming& streaming, double bytes_per_element) {
  streaming.Pass();
  std::vector<double> rates;
  for (int i = 0; i < kRepeats; ++i) {
    const double bytes = static_cast<double>(kChunks * kElements) * bytes_per_element;
    rates.push_back(bytes / streaming.Pass() / 1e9);
  }
  Print(what, rates);
  std::printf("%-58s %7.1f GB/s\n", "  its kernels alone, 28 bytes an element",
              static_cast<double>(kChunks * kElements) * 28 / streaming.KernelSeconds() / 1e9);
}

int Main(int argc, char** argv) {
  const auto gpus = FindGpus();
  if (!gpus.ok()) {
    std::cout << "skipped: " << gpus.status().message() << std::endl;
    return 77;
  }
  CudaDeviceOptions options;
  uint64_t staging_mib = 0;
  if (argc > 1 && absl::SimpleAtoi(argv[1], &staging_mib)) {
    options.staging_bytes = staging_mib * kMiB;
  }
  if (argc > 2 && !absl::SimpleAtoi(argv[2], &options.slots)) {
    return 2;
  }
  const auto gpu = OrDie(OpenGpu(gpus->front().uuid, options));
  const auto probe = OrDie(GpuProbe::Create());
  std::printf("%s\n", gpu->Describe().c_str());
  Pinned state(*gpu, kChunks * kChunkBytes);
  Pinned slots(*gpu, 4 * 2 * kElements * 4);
  std::vector<double> duplex;
  for (int i = 0; i < kRepeats; ++i) {
    duplex.push_back(DuplexRate(probe->context(), state));
  }
  Print("copies alone, both directions added", duplex);
  {
    Streaming streaming(*gpu, state, slots, 0);
    Measure("state, gradients and parameters on the host, both ways", streaming, 32);
  }
  const DeviceMemory device_slot = OrDie(AllocateDeviceMemory(probe->context(), 2 * kElements * 4));
  Streaming streaming(*gpu, state, slots, device_slot.get());
  Measure("state on the host, the rest on the GPU, both ways", streaming, 24);
  return 0;
}

}  // namespace
}  // namespace moment::cuda

int main(int argc, char** argv) { return moment::cuda::Main(argc, argv); }
