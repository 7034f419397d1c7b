#include "cuda/host_registry.h"

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::cuda {

HostRegistry& HostRegistry::Process() {
  static HostRegistry& registry = *new HostRegistry;
  return registry;
}

absl::Status HostRegistry::Register(const Context& context, std::span<std::byte> memory) {
  absl::MutexLock lock(&mutex_);
  if (const auto known = users_.find(memory.data()); known != users_.end()) {
    ++known->second;
    return absl::OkStatus();
  }
  const ContextGuard guard(context);
  MOMENT_RETURN_IF_ERROR(context.driver().Check(
      context.driver().cuMemHostRegister(memory.data(), memory.size(), CU_MEMHOSTREGISTER_PORTABLE),
      "pin", absl::StrCat(memory.size(), " bytes of host memory")));
  users_[memory.data()] = 1;
  ranges_.Add(memory);
  return absl::OkStatus();
}

void HostRegistry::Unregister(const Context& context, std::span<std::byte> memory) {
  absl::MutexLock lock(&mutex_);
  const auto known = users_.find(memory.data());
  if (known == users_.end() || --known->second > 0) {
    return;
  }
  users_.erase(known);
  ranges_.Remove(memory);
  const ContextGuard guard(context);
  context.driver().cuMemHostUnregister(memory.data());
}

}  // namespace moment::cuda
