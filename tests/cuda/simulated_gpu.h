#pragma once

#include <string>
#include <vector>

#include "cuda/piece_plan.h"
#include "daemon/device/device.h"

namespace moment::cuda {

// A device that cuts, plans and copies as CudaDevice does, with ordinary memory in the GPU's place
// and the reference in the kernels': it holds the plans to account where there is no GPU. Computes
// within Submit.
class SimulatedGpu : public device::Device {
 public:
  SimulatedGpu(device::Profile profile, uint64_t slot_bytes, uint32_t max_runs);

  const std::string& name() const override { return name_; }
  std::string Describe() const override { return "simulated"; }
  bool Supports(device::Profile profile) const override { return profile == profile_; }
  device::Profile default_profile() const override { return profile_; }
  int concurrency() const override { return 1; }
  void Submit(device::ChunkWork* work) override;

  uint64_t pieces() const { return pieces_; }

 private:
  absl::Status Check(const device::ChunkWork& work) const;
  absl::Status RunPiece(const device::ChunkWork& work, const Piece& piece);
  void RunTile(const device::ChunkWork& work, const KernelRun& run, uint32_t index);
  void RunElement(const device::ChunkWork& work, const KernelRun& run, uint64_t element);
  void RunAdam(const device::ChunkWork& work, const KernelRun& run, uint64_t element);
  uint64_t Origin(int segment) const;

  const std::string name_ = "simulated";
  const device::Profile profile_;
  const SlotLayout layout_;
  const RegisteredRanges registered_;
  std::vector<std::byte> tables_;
  std::vector<std::byte> memory_;
  std::byte* slot_ = nullptr;
  PiecePlan plan_;
  uint64_t pieces_ = 0;
};

}  // namespace moment::cuda
