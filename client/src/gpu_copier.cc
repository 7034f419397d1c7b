#include "client/src/gpu_copier.h"

#include <utility>

namespace moment::client {
namespace {

constexpr unsigned kStreamNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
constexpr unsigned kRegisterPortable = 1;   // CU_MEMHOSTREGISTER_PORTABLE

}  // namespace

struct GpuCopier::Gpu {
  explicit Gpu(CudaContext made) : context(std::move(made)) {}
  CudaContext context;
  void* stream = nullptr;
  bool busy = false;
};

GpuCopier::GpuCopier() = default;

GpuCopier::~GpuCopier() {
  Finish();
  for (auto& [ordinal, gpu] : gpus_) {
    const CudaContext::Current current(gpu->context);
    driver_->cuStreamDestroy_v2(gpu->stream);
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
  if (driver_->cuStreamCreate(&gpu->stream, kStreamNonBlocking) != 0) {
    gpus_.erase(ordinal);
    return nullptr;
  }
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

bool GpuCopier::Start(int ordinal, std::byte* to, const std::byte* from, uint64_t length_bytes) {
  Gpu* const gpu = Prepare(ordinal);
  if (gpu == nullptr) {
    return false;
  }
  const CudaContext::Current current(gpu->context);
  gpu->busy = true;
  return driver_->cuMemcpyAsync(reinterpret_cast<CudaAddress>(to),
                                reinterpret_cast<CudaAddress>(from), length_bytes,
                                gpu->stream) == 0;
}

bool GpuCopier::Finish() {
  bool fine = true;
  for (auto& [ordinal, gpu] : gpus_) {
    if (std::exchange(gpu->busy, false)) {
      const CudaContext::Current current(gpu->context);
      fine = driver_->cuStreamSynchronize(gpu->stream) == 0 && fine;
    }
  }
  return fine;
}

}  // namespace moment::client
