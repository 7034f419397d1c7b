#include <cstddef>

#include "daemon/base/worker_pool.h"
#include "daemon/device/adam_constants.h"
#include "daemon/device/host_device.h"
#include "tests/device/device_under_test.h"

namespace moment::device {
namespace {

// A host device with a pool of its own.
struct Host {
  base::WorkerPool workers;
  HostDevice device;
  Host(int threads, const HostDeviceOptions& options)
      : workers(threads), device(workers, options) {}
};

template <InstructionSet Set, int Threads, int Concurrency>
std::shared_ptr<Device> Make() {
  HostDeviceOptions options;
  options.concurrency = Concurrency;
  options.instruction_set = Set;
  auto host = std::make_shared<Host>(Threads, options);
  return {host, &host->device};
}

template <Profile Which>
AdamElement Reference(const Hyperparameters& hyperparameters, uint64_t t, float gradient,
                      AdamElement element) {
  return AdamUpdate(MakeAdamConstants(hyperparameters, t, Which), gradient, element);
}

}  // namespace

std::vector<DeviceUnderTest> DevicesUnderTest() {
  constexpr Profile kMkl = Profile::kTorchCpu;
  constexpr Profile kIeee = Profile::kTorchCpuIeee;
  std::vector<DeviceUnderTest> devices = {
      {"host, scalar, one thread", &Make<InstructionSet::kScalar, 1, 1>, kMkl, &Reference<kMkl>},
      {"host, scalar, IEEE root", &Make<InstructionSet::kScalar, 2, 2>, kIeee, &Reference<kIeee>},
  };
  if (Available(InstructionSet::kAvx2)) {
    devices.push_back({"host, AVX2", &Make<InstructionSet::kAvx2, 3, 2>, kMkl, &Reference<kMkl>});
  }
  if (Available(InstructionSet::kAvx512)) {
    devices.push_back(
        {"host, AVX-512", &Make<InstructionSet::kAvx512, 4, 3>, kMkl, &Reference<kMkl>});
  }
  return devices;
}

}  // namespace moment::device
