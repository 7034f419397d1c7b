#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "client/src/cuda_driver.h"

namespace moment::client {

// Copies between the ring's slots and GPU memory that nobody else can reach, on a stream of its
// own: never on the trainer's, and never through CUDA's runtime. Used by one thread.
class GpuCopier {
 public:
  GpuCopier();
  ~GpuCopier();
  GpuCopier(const GpuCopier&) = delete;
  GpuCopier& operator=(const GpuCopier&) = delete;

  // Host memory that copies use; it is pinned at the first one, and outlives this.
  void SetPinned(std::byte* data, uint64_t length_bytes);

  // Starts a copy to or from memory of this GPU, after those of the same lane. False if the driver
  // refuses.
  bool Start(int gpu, uint32_t lane, std::byte* to, const std::byte* from, uint64_t length_bytes);
  // Waits for all that was started in the lane. False if one of them failed.
  bool Finish(uint32_t lane);

 private:
  struct Gpu;
  struct Lane;

  Gpu* Prepare(int ordinal);
  Lane* PrepareLane(Gpu& gpu, uint32_t number);
  void Pin();

  const CudaDriver* driver_ = nullptr;
  std::byte* pinned_data_ = nullptr;
  uint64_t pinned_bytes_ = 0;
  bool pinned_ = false;
  std::map<int, std::unique_ptr<Gpu>> gpus_;
};

}  // namespace moment::client
