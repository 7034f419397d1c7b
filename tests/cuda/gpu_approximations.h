#pragma once

#include "absl/status/statusor.h"
#include "cuda/adam_reference.h"

namespace moment::cuda {

// The first GPU's reciprocal and square root as tables over all mantissas, so that the processor
// computes profile te with that GPU's bits. Made once a process; 96 MiB.
const Approximations& GpuApproximations();

}  // namespace moment::cuda
