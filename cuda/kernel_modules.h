#pragma once

#include <cuda.h>

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/kernel_arguments.h"
#include "cuda/owners.h"
#include "daemon/device/device.h"

namespace moment::cuda {

// All kernels of this build, loaded into a context, which outlives them. Immutable: thread-safe.
class KernelModules {
 public:
  static absl::StatusOr<KernelModules> Load(const Context& context);

  // Each enqueues on `stream`; the current context is the kernels' own.
  // The scalars, copied there before, become complete.
  absl::Status CompleteScalars(CUstream stream, device::Profile profile, CUdeviceptr scalars,
                               uint32_t count) const;
  // One block a tile; `types` are those of the segments.
  absl::Status Run(CUstream stream, const device::ChunkWork& work, const KernelChunk& chunk,
                   uint32_t tiles) const;

 private:
  static constexpr int kProfiles = 4;
  static constexpr int kExpAvgTypes = 3;
  static constexpr int kExpAvgSqTypes = 2;

  struct AdamFunctions {
    CUfunction complete_scalars = nullptr;
    CUfunction adam[kExpAvgTypes][kExpAvgSqTypes] = {};
  };

  KernelModules() = default;
  absl::Status LoadAdam(const Context& context, int index);
  absl::Status LoadConversions(const Context& context);
  absl::Status Launch(CUstream stream, CUfunction function, uint32_t blocks,
                      void** arguments) const;

  const Driver* driver_ = nullptr;
  Module adam_modules_[kProfiles];
  Module conversions_;
  AdamFunctions adam_[kProfiles];
  CUfunction read_segments_ = nullptr;
  CUfunction write_segments_ = nullptr;
};

// Whether torch computes some scalars of this profile on the GPU, so that we do too.
bool CompletesScalars(device::Profile profile);
// Whether there are kernels for it.
bool HasKernels(device::Profile profile);

}  // namespace moment::cuda
