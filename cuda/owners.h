#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/driver.h"

// One move-only owner for each thing of the driver's.
namespace moment::cuda {

// The process's primary context on one GPU. Its owners outlive everything made in it.
class Context {
 public:
  static absl::StatusOr<Context> Retain(const Driver& driver, CUdevice gpu);
  Context(Context&& other) noexcept;
  Context& operator=(Context&&) = delete;
  ~Context();

  const Driver& driver() const { return *driver_; }
  CUdevice gpu() const { return gpu_; }
  CUcontext get() const { return context_; }

 private:
  Context(const Driver* driver, CUdevice gpu, CUcontext context)
      : driver_(driver), gpu_(gpu), context_(context) {}

  const Driver* driver_;
  CUdevice gpu_;
  CUcontext context_;
};

// Makes a context the calling thread's for a scope. What the calls inside find is their own to
// report: without the context they fail.
class ContextGuard {
 public:
  explicit ContextGuard(const Context& context);
  ~ContextGuard();
  ContextGuard(const ContextGuard&) = delete;
  ContextGuard& operator=(const ContextGuard&) = delete;

 private:
  const Driver& driver_;
};

// Owns a handle of the driver's in a context, which outlives it.
template <typename Handle, void (*Destroy)(const Driver&, Handle)>
class Owned {
 public:
  Owned() = default;
  Owned(const Context& context, Handle handle) : context_(&context), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : context_(std::exchange(other.context_, nullptr)),
        handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (context_ != nullptr) {
      const ContextGuard guard(*context_);
      Destroy(context_->driver(), handle_);
    }
  }

  Handle get() const { return handle_; }

 private:
  const Context* context_ = nullptr;
  Handle handle_ = {};
};

void DestroyStream(const Driver& driver, CUstream stream);
void DestroyEvent(const Driver& driver, CUevent event);
void UnloadModule(const Driver& driver, CUmodule module);
void FreeDeviceMemory(const Driver& driver, CUdeviceptr memory);
void FreePinnedMemory(const Driver& driver, std::byte* memory);

// What destroying them finds wrong is not reported: the driver reports errors of earlier work
// there.
using Stream = Owned<CUstream, DestroyStream>;
using Event = Owned<CUevent, DestroyEvent>;
using Module = Owned<CUmodule, UnloadModule>;
using DeviceMemory = Owned<CUdeviceptr, FreeDeviceMemory>;
using PinnedMemory = Owned<std::byte*, FreePinnedMemory>;

// All in `context`.
absl::StatusOr<Stream> MakeStream(const Context& context);
absl::StatusOr<Event> MakeEvent(const Context& context);  // with times; waiting for it sleeps
absl::StatusOr<Module> LoadModule(const Context& context, const void* image,
                                  absl::string_view name);
absl::StatusOr<DeviceMemory> AllocateDeviceMemory(const Context& context, uint64_t length_bytes);
absl::StatusOr<PinnedMemory> AllocatePinnedMemory(const Context& context, uint64_t length_bytes);

}  // namespace moment::cuda
