#pragma once

#include <cstddef>
#include <cstdint>

#include "daemon/device/adam_reference.h"
#include "daemon/device/types.h"

// The plain definition of the CUDA profiles on the processor, one element at a time; the kernels
// give the same bits (of a NaN only that it is one).
namespace moment::cuda {

// 1 / x and the square root as a GPU approximates them: profile te is made of them, and the powers
// of torch-cuda begin with a reciprocal (power_float.h). The processor has the exact ones; whoever
// needs the GPU's bits brings its functions.
struct Approximations {
  float (*reciprocal)(float x) = nullptr;
  float (*square_root)(float x) = nullptr;
};
const Approximations& ExactApproximations();

device::AdamElement AdamUpdate(device::Profile profile,
                               const device::Hyperparameters& hyperparameters, uint64_t t,
                               float gradient, device::AdamElement element,
                               const Approximations& approximations = ExactApproximations());

// The same with an entry of scalar_table.h.
device::AdamElement AdamUpdate(device::Profile profile, const std::byte* scalars, float gradient,
                               device::AdamElement element,
                               const Approximations& approximations = ExactApproximations());

}  // namespace moment::cuda
