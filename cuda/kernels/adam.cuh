#pragma once

#include "cuda/adam_arithmetic.h"
#include "cuda/kernel_arguments.h"
#include "cuda/kernels/device_operations.cuh"
#include "cuda/kernels/group_access.cuh"

// Adam of one profile and pair of moment types: one pass over a chunk, a block a tile. Types of
// gradients and parameters differ from run to run, so they are looked up, once a block.
namespace moment::cuda {

template <typename Profile, typename ExpAvg, typename ExpAvgSq>
struct AdamWork {
  const KernelChunk& chunk;
  const KernelRun& run;
  const typename Profile::Scalars& scalars;

  template <typename Elements>
  __device__ __forceinline__ void Run(uint64_t index) const {
    auto main = LoadState<Elements, float>(chunk.segments[0], index);
    auto exp_avg = LoadState<Elements, ExpAvg>(chunk.segments[1], index);
    auto exp_avg_sq = LoadState<Elements, ExpAvgSq>(chunk.segments[2], index);
    const auto gradient = Load<Elements>(run.gradient_type, run.gradient_origin, index);
#pragma unroll
    for (uint32_t i = 0; i < Elements::kElements; ++i) {
      const device::AdamElement element =
          Profile::Update(DeviceOperations(), scalars, gradient.values[i],
                          {main.values[i], exp_avg.values[i], exp_avg_sq.values[i]});
      main.values[i] = element.main;
      exp_avg.values[i] = element.exp_avg;
      exp_avg_sq.values[i] = element.exp_avg_sq;
    }
    StoreState<Elements, float>(main, chunk.segments[0], index);
    StoreState<Elements, ExpAvg>(exp_avg, chunk.segments[1], index);
    StoreState<Elements, ExpAvgSq>(exp_avg_sq, chunk.segments[2], index);
    Store<Elements>(run.buffer_type, main, run.buffer_origin, index);
  }
};

template <typename Profile, DataType ExpAvg, DataType ExpAvgSq>
__device__ __forceinline__ void AdamTile(const KernelChunk& chunk) {
  const KernelTile tile = chunk.tiles[blockIdx.x];
  const KernelRun run = chunk.runs[tile.run];
  const typename Profile::Scalars scalars =
      static_cast<const typename Profile::Scalars*>(chunk.scalars)[run.scalars];
  ForEachGroup(run, tile.index,
               AdamWork<Profile, typename Storage<ExpAvg>::Type, typename Storage<ExpAvgSq>::Type>{
                   chunk, run, scalars});
}

// What torch computes on the GPU of the scalars, one thread each.
template <typename Profile>
__device__ __forceinline__ void CompleteScalars(void* table, uint32_t count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) {
    Profile::Complete(DeviceOperations(), static_cast<typename Profile::Scalars*>(table)[i]);
  }
}

}  // namespace moment::cuda

#define MOMENT_ADAM_KERNEL(profile, exp_avg, exp_avg_sq)                       \
  extern "C" __global__ void __launch_bounds__(moment::cuda::kThreadsPerBlock) \
      moment_adam_##exp_avg##_##exp_avg_sq(                                    \
          const __grid_constant__ moment::cuda::KernelChunk chunk) {           \
    moment::cuda::AdamTile<profile, moment::device::DataType::k##exp_avg,      \
                           moment::device::DataType::k##exp_avg_sq>(chunk);    \
  }

// All kernels of a profile; a module holds one profile.
#define MOMENT_ADAM_KERNELS(profile)                                                \
  MOMENT_ADAM_KERNEL(profile, Float32, Float32)                                     \
  MOMENT_ADAM_KERNEL(profile, Float32, BFloat16)                                    \
  MOMENT_ADAM_KERNEL(profile, BFloat16, Float32)                                    \
  MOMENT_ADAM_KERNEL(profile, BFloat16, BFloat16)                                   \
  MOMENT_ADAM_KERNEL(profile, Float16, Float32)                                     \
  MOMENT_ADAM_KERNEL(profile, Float16, BFloat16)                                    \
  extern "C" __global__ void moment_complete_scalars(void* table, uint32_t count) { \
    moment::cuda::CompleteScalars<profile>(table, count);                           \
  }
