#include "cuda/owners.h"

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::cuda {

absl::StatusOr<Context> Context::Retain(const Driver& driver, CUdevice gpu) {
  CUcontext context = nullptr;
  MOMENT_RETURN_IF_ERROR(driver.Check(driver.cuDevicePrimaryCtxRetain(&context, gpu),
                                      "make the context of", absl::StrCat("GPU ", gpu)));
  return Context(&driver, gpu, context);
}

Context::Context(Context&& other) noexcept
    : driver_(other.driver_), gpu_(other.gpu_), context_(std::exchange(other.context_, nullptr)) {}

Context::~Context() {
  if (context_ != nullptr) {
    driver_->cuDevicePrimaryCtxRelease(gpu_);
  }
}

ContextGuard::ContextGuard(const Context& context) : driver_(context.driver()) {
  driver_.cuCtxPushCurrent(context.get());
}

ContextGuard::~ContextGuard() {
  CUcontext popped = nullptr;
  driver_.cuCtxPopCurrent(&popped);
}

void DestroyStream(const Driver& driver, CUstream stream) { driver.cuStreamDestroy(stream); }
void DestroyEvent(const Driver& driver, CUevent event) { driver.cuEventDestroy(event); }
void UnloadModule(const Driver& driver, CUmodule module) { driver.cuModuleUnload(module); }
void FreeDeviceMemory(const Driver& driver, CUdeviceptr memory) { driver.cuMemFree(memory); }
void FreePinnedMemory(const Driver& driver, std::byte* memory) { driver.cuMemFreeHost(memory); }

absl::StatusOr<Stream> MakeStream(const Context& context) {
  const ContextGuard guard(context);
  CUstream stream = nullptr;
  MOMENT_RETURN_IF_ERROR(context.driver().Check(
      context.driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "make", "a stream"));
  return Stream(context, stream);
}

absl::StatusOr<Event> MakeEvent(const Context& context) {
  const ContextGuard guard(context);
  CUevent event = nullptr;
  MOMENT_RETURN_IF_ERROR(context.driver().Check(
      context.driver().cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC), "make", "an event"));
  return Event(context, event);
}

absl::StatusOr<Module> LoadModule(const Context& context, const void* image,
                                  absl::string_view name) {
  const ContextGuard guard(context);
  CUmodule module = nullptr;
  MOMENT_RETURN_IF_ERROR(context.driver().Check(context.driver().cuModuleLoadData(&module, image),
                                                "load the kernels of", name));
  return Module(context, module);
}

absl::StatusOr<DeviceMemory> AllocateDeviceMemory(const Context& context, uint64_t length_bytes) {
  const ContextGuard guard(context);
  CUdeviceptr memory = 0;
  MOMENT_RETURN_IF_ERROR(context.driver().Check(context.driver().cuMemAlloc(&memory, length_bytes),
                                                "allocate",
                                                absl::StrCat(length_bytes, " bytes of the GPU")));
  return DeviceMemory(context, memory);
}

absl::StatusOr<PinnedMemory> AllocatePinnedMemory(const Context& context, uint64_t length_bytes) {
  const ContextGuard guard(context);
  void* memory = nullptr;
  MOMENT_RETURN_IF_ERROR(context.driver().Check(
      context.driver().cuMemHostAlloc(&memory, length_bytes, CU_MEMHOSTALLOC_PORTABLE), "allocate",
      absl::StrCat(length_bytes, " bytes of pinned memory")));
  return PinnedMemory(context, static_cast<std::byte*>(memory));
}

}  // namespace moment::cuda
