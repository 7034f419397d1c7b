#include "cuda/nvml.h"

#include <dlfcn.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moment::cuda {
namespace {

// The toolkit's headers may come without nvml.h: what is used of its binary interface stands here.
constexpr int kSuccess = 0;
constexpr size_t kVersionBytes = 80;

using NvmlDevice = void*;

struct NvmlMemory {  // nvmlMemory_t
  unsigned long long total = 0;
  unsigned long long free = 0;
  unsigned long long used = 0;
};

struct NvmlConfidentialState {  // nvmlConfComputeSystemState_t
  unsigned int environment = 0;
  unsigned int feature = 0;  // 1: on
  unsigned int developer_tools = 0;
};

template <typename Function>
void Resolve(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

struct Nvml::Functions {
  void* library = nullptr;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*driver_version)(char* text, unsigned int length) = nullptr;
  int (*confidential)(NvmlConfidentialState* state) = nullptr;
  int (*device_by_uuid)(const char* uuid, NvmlDevice* device) = nullptr;
  int (*memory)(NvmlDevice device, NvmlMemory* memory) = nullptr;

  ~Functions() { ::dlclose(library); }
};

absl::StatusOr<std::unique_ptr<Nvml>> Nvml::LoadFrom(const std::string& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::NotFoundError(absl::StrCat("no management library: ", ::dlerror()));
  }
  auto functions = std::make_unique<Functions>();
  functions->library = library;
  Resolve(library, "nvmlInit_v2", functions->init);
  Resolve(library, "nvmlShutdown", functions->shutdown);
  Resolve(library, "nvmlSystemGetDriverVersion", functions->driver_version);
  Resolve(library, "nvmlSystemGetConfComputeState", functions->confidential);
  Resolve(library, "nvmlDeviceGetHandleByUUID", functions->device_by_uuid);
  Resolve(library, "nvmlDeviceGetMemoryInfo", functions->memory);
  if (functions->init == nullptr || functions->shutdown == nullptr) {
    return absl::UnavailableError(absl::StrCat(file, " is no management library of NVIDIA's"));
  }
  if (const int result = functions->init(); result != kSuccess) {
    return absl::UnavailableError(
        absl::StrCat("the management library ", file, " does not initialise: error ", result));
  }
  return std::unique_ptr<Nvml>(new Nvml(std::move(functions)));
}

absl::StatusOr<const Nvml*> Nvml::Load() {
  static const auto& loaded =
      *new absl::StatusOr<std::unique_ptr<Nvml>>(LoadFrom("libnvidia-ml.so.1"));
  if (!loaded.ok()) {
    return loaded.status();
  }
  return loaded->get();
}

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

Nvml::~Nvml() { functions_->shutdown(); }

std::optional<std::string> Nvml::DriverVersion() const {
  std::array<char, kVersionBytes> text = {};
  if (functions_->driver_version == nullptr ||
      functions_->driver_version(text.data(), kVersionBytes) != kSuccess) {
    return std::nullopt;
  }
  return std::string(text.data());
}

std::optional<bool> Nvml::Confidential() const {
  NvmlConfidentialState state;
  if (functions_->confidential == nullptr || functions_->confidential(&state) != kSuccess) {
    return std::nullopt;
  }
  return state.feature != 0;
}

std::optional<uint64_t> Nvml::UsedBytes(const std::string& uuid) const {
  NvmlDevice device = nullptr;
  NvmlMemory memory;
  if (functions_->device_by_uuid == nullptr || functions_->memory == nullptr ||
      functions_->device_by_uuid(uuid.c_str(), &device) != kSuccess ||
      functions_->memory(device, &memory) != kSuccess) {
    return std::nullopt;
  }
  return memory.used;
}

}  // namespace moment::cuda
