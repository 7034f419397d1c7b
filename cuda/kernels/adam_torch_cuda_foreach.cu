#include "cuda/kernels/adam.cuh"

MOMENT_ADAM_KERNELS(moment::cuda::TorchCudaForeach)
