#include "client/src/gpu_copier.h"

#include <utility>

namespace moment::client {
namespace {

constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kRegisterPortable = 1;   // CU_MEMHOSTREGISTER_PORTABLE

}  // namespace

struct GpuCopier::Lane {
  void* stream = nullptr;
  bool busy = false;
};

struct GpuCopier::Gpu {
  explicit Gpu(CudaContext made) : context(std::move(made)) {}
  CudaContext context;
  std::map<uint32_t, Lane> lanes;
};

GpuCopier::GpuCopier() = default;

GpuCopier::~GpuCopier() {
  for (auto& [ordinal, gpu] : gpus_) {
    const CudaContext::Current current(gpu->context);
    for (auto& [number, lane] : gpu->lanes) {
      driver_->cuStreamSynchronize(lane.stream);
      driver_->cuStreamDestroy_v2(lane.stream);
    }
    if (std::exchange(pinned_, false)) {
      driver_->cuMemHostUnregister(pinned_data_);
    }
  }
}

void GpuCopier::SetPinned(std::byte* data, uint64_t length_bytes) {
  pinned_data_ = data;
  pinned_bytes_ = length_bytes;
}

GpuCopier::Gpu* GpuCopier::Prepare(int ordinal) {
  auto& known = gpus_[ordinal];
  if (known != nullptr) {
    return known.get();
  }
  driver_ = CudaDriver::Loaded();
  if (driver_ == nullptr) {
    gpus_.erase(ordinal);
    return nullptr;
  }
  absl::StatusOr<CudaContext> context = CudaContext::Retain(*driver_, ordinal);
  if (!context.ok()) {
    gpus_.erase(ordinal);
    return nullptr;
  }
  auto gpu = std::make_unique<Gpu>(*std::move(context));
  const CudaContext::Current current(gpu->context);
  Pin();
  known = std::move(gpu);
  return known.get();
}

// Copies of memory that could not be pinned work too, slowly.
void GpuCopier::Pin() {
  if (!pinned_ && pinned_data_ != nullptr) {
    pinned_ = driver_->cuMemHostRegister_v2(pinned_data_, pinned_bytes_, kRegisterPortable) == 0;
  }
}

// The GPU's context is current.
GpuCopier::Lane* GpuCopier::PrepareLane(Gpu& gpu, uint32_t number) {
  const auto found = gpu.lanes.find(number);
  if (found != gpu.lanes.end()) {
    return &found->second;
  }
  void* stream = nullptr;
  if (driver_->cuStreamCreate(&stream, kStreamNonBlocking) != 0) {
    return nullptr;
  }
  return &gpu.lanes.emplace(number, Lane{stream, false}).first->second;
}

bool GpuCopier::Start(int ordinal, uint32_t lane, std::byte* to, const std::byte* from,
                      uint64_t length_bytes) {
  Gpu* const gpu = Prepare(ordinal);
  if (gpu == nullptr) {
    return false;
  }
  const CudaContext::Current current(gpu->context);
  Lane* const on = PrepareLane(*gpu, lane);
  if (on == nullptr) {
    return false;
  }
  on->busy = true;
  return driver_->cuMemcpyAsync(reinterpret_cast<CudaAddress>(to),
                                reinterpret_cast<CudaAddress>(from), length_bytes, on->stream) == 0;
}

bool GpuCopier::Finish(uint32_t lane) {
  bool fine = true;
  for (auto& [ordinal, gpu] : gpus_) {
    const auto on = gpu->lanes.find(lane);
    if (on != gpu->lanes.end() && std::exchange(on->second.busy, false)) {
      const CudaContext::Current current(gpu->context);
      fine = driver_->cuStreamSynchronize(on->second.stream) == 0 && fine;
    }
  }
  return fine;
}

}  // namespace moment::client
