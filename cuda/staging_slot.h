#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/kernel_modules.h"
#include "cuda/owners.h"
#include "cuda/piece_plan.h"

namespace moment::cuda {

// A piece of the GPU's memory with a stream of its own: a piece of a chunk is copied there,
// computed and copied back, while other slots do the same with others. Holds one piece at a time;
// used by one thread at a time.
class StagingSlot {
 public:
  // `memory`: layout.table_bytes + layout.limits.data_bytes of the GPU, aligned to 4096. All
  // parameters outlive the slot.
  static absl::StatusOr<std::unique_ptr<StagingSlot>> Create(const Context& context,
                                                             const KernelModules& kernels,
                                                             const SlotLayout& layout,
                                                             CUdeviceptr memory);

  // Enqueues everything about a piece. On an error nothing of it is under way any more.
  absl::Status Start(const device::ChunkWork& work, const Piece& piece,
                     const RegisteredRanges& registered);
  // Waits for what was started; the kernels' own seconds.
  absl::StatusOr<double> Finish();

 private:
  StagingSlot(const Context& context, const KernelModules& kernels, const SlotLayout& layout,
              CUdeviceptr memory)
      : context_(context), kernels_(kernels), layout_(layout), memory_(memory) {}

  absl::Status Enqueue(const device::ChunkWork& work);
  absl::Status CopyIn();
  absl::Status Compute(const device::ChunkWork& work);
  absl::Status CopyOut();

  const Context& context_;
  const KernelModules& kernels_;
  const SlotLayout layout_;
  const CUdeviceptr memory_;
  PinnedMemory tables_;
  Stream stream_;
  Event before_kernels_;
  Event behind_kernels_;
  Event done_;
  PiecePlan plan_;
};

}  // namespace moment::cuda
