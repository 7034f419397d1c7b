#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cuda/cuda_devices.h"
#include "cuda/driver.h"
#include "daemon/device/device.h"

namespace moment::cuda {

// Adam on a GPU: chunks lie in host memory and pass through slots of the GPU's memory in pieces, so
// that copies in both directions and kernels overlap. One thread starts pieces in the order of
// Submit, another waits for them in that order and runs `done`. Thread-safe.
//
// After an error that loses the GPU for this process every chunk ends with UNAVAILABLE.
class CudaDevice : public device::Device {
 public:
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const Driver& driver, CUdevice gpu,
                                                            const Gpu& identity,
                                                            const CudaDeviceOptions& options);
  ~CudaDevice() override;
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const std::string& name() const override;
  std::string Describe() const override;
  bool Supports(device::Profile profile) const override;
  device::Profile default_profile() const override { return device::Profile::kTorchCuda; }
  int concurrency() const override;

  // What is malformed ends with INVALID_ARGUMENT, as all else by `done`.
  void Submit(device::ChunkWork* work) override;

  void OnLost(std::function<void(const absl::Status&)> lost) override;
  std::optional<device::DeviceMemoryUse> MemoryUse() const override;

  absl::Status RegisterMemory(std::span<std::byte> memory) override;
  void UnregisterMemory(std::span<std::byte> memory) override;

  device::MemoryImporter* importer() override;

 private:
  struct State;
  explicit CudaDevice(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace moment::cuda
