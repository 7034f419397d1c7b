#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/base/worker_pool.h"
#include "daemon/device/device.h"
#include "daemon/device/kernels.h"

namespace moment::device {

struct HostDeviceOptions {
  int concurrency = 2;  // chunks worked on at a time; others wait
  InstructionSet instruction_set = BestInstructionSet();
};

// Adam on the processor, on the threads of a pool that it shares and does not own; a chunk is cut
// into pieces that all of them take. `done` runs on one of them. Thread-safe.
class HostDevice : public Device {
 public:
  explicit HostDevice(base::WorkerPool& workers, const HostDeviceOptions& options = {});
  ~HostDevice() override;
  HostDevice(const HostDevice&) = delete;
  HostDevice& operator=(const HostDevice&) = delete;

  const std::string& name() const override;
  std::string Describe() const override;
  bool Supports(Profile profile) const override;
  Profile default_profile() const override { return Profile::kTorchCpu; }
  int concurrency() const override;

  // What is malformed (runs out of order, a missing pointer, a type or profile it does not compute)
  // ends with INVALID_ARGUMENT, as all else by `done`.
  void Submit(ChunkWork* work) override;

  // The processor stays. The failpoint device.lost takes it away all the same, as a fault takes a
  // GPU, so that what follows can be tested on every machine.
  void OnLost(std::function<void(const absl::Status&)> lost) override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moment::device
