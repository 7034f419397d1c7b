#pragma once

namespace moment::cuda {

// powf as CUDA's compiler builds it for the GPU, on the processor: base 0 to 1, exponent 1 or more.
// With the GPU's own approximate reciprocal (of 1.7 to 2.5) it has the GPU's bits. The operations
// that follow correct that reciprocal, so with an exact one the last place differs in one of some
// thousands of results.
float PowerFloat(float base, float exponent, float (*reciprocal)(float x));

}  // namespace moment::cuda
