// Single operations of the GPU, for the tests.
#include <cstdint>

#include "cuda/kernels/device_operations.cuh"

using moment::cuda::DeviceOperations;

extern "C" __global__ void moment_probe_reciprocal(float* results, uint32_t first_bits,
                                                   uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    results[i] = DeviceOperations::ReciprocalApproximate(__uint_as_float(first_bits + i));
  }
}

extern "C" __global__ void moment_probe_square_root(float* results, uint32_t first_bits,
                                                    uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    results[i] = DeviceOperations::SquareRootApproximate(__uint_as_float(first_bits + i));
  }
}

extern "C" __global__ void moment_probe_power(const float* bases, const float* exponents,
                                              float* results, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    results[i] = DeviceOperations::Power(bases[i], exponents[i]);
  }
}
