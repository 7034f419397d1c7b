#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "cuda/adam_scalars.h"
#include "daemon/device/types.h"

// The scalars of a profile (adam_scalars.h) as entries of a table in raw memory.
namespace moment::cuda {

uint64_t ScalarBytes(device::Profile profile);
inline constexpr uint64_t kMaxScalarBytes =
    std::max({sizeof(TorchCudaScalars), sizeof(TorchCudaForeachScalars),
              sizeof(TorchCuda210Scalars), sizeof(TeScalars)});

// Those of one tensor's update; `t` is its step.
void WriteScalars(device::Profile profile, const device::Hyperparameters& hyperparameters,
                  uint64_t t, std::byte* to);

}  // namespace moment::cuda
