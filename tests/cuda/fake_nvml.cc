// A management library of one GPU, for nvml_test.cc. FAKE_NVML names what it lacks or refuses.
#include <cstdlib>
#include <cstring>

namespace {

bool Is(const char* what) {
  const char* const fault = std::getenv("FAKE_NVML");
  return fault != nullptr && std::strcmp(fault, what) == 0;
}

constexpr int kFailure = 999;

struct Memory {
  unsigned long long total, free, used;
};
struct Confidential {
  unsigned int environment, feature, developer_tools;
};

int device;

}  // namespace

extern "C" {

int nvmlInit_v2() { return Is("init") ? kFailure : 0; }
int nvmlShutdown() { return 0; }

int nvmlSystemGetDriverVersion(char* text, unsigned int length) {
  if (Is("driver") || length < 10) {
    return kFailure;
  }
  std::strcpy(text, "580.1.2");
  return 0;
}

int nvmlSystemGetConfComputeState(Confidential* state) {
  *state = {1, Is("confidential") ? 1u : 0u, 0};
  return Is("confidential-state") ? kFailure : 0;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
  *handle = &device;
  return std::strcmp(uuid, "GPU-1") == 0 ? 0 : kFailure;
}

int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  *memory = {1000, 600, 400};
  return handle == &device ? 0 : kFailure;
}
}
