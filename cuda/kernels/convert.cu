// Between segments and the trainer's memory: Refresh, Materialize, and single tensors.
#include "cuda/kernel_arguments.h"
#include "cuda/kernels/group_access.cuh"

namespace moment::cuda {
namespace {

__device__ __forceinline__ uint64_t SegmentOrigin(const KernelChunk& chunk, const KernelRun& run) {
  return reinterpret_cast<uint64_t>(chunk.segments[run.segment]);
}

// Equal types are copied bit for bit.
template <typename Elements>
__device__ __forceinline__ void Convert(DataType from_type, uint64_t from, DataType to_type,
                                        uint64_t to, uint64_t index) {
  if (from_type == to_type && from_type != DataType::kFloat32) {
    StoreAs<Elements, Bits16>(LoadAs<Elements, Bits16>(from, index), to, index);
  } else {
    Store<Elements>(to_type, Load<Elements>(from_type, from, index), to, index);
  }
}

struct ReadWork {
  const KernelChunk& chunk;
  const KernelRun& run;

  template <typename Elements>
  __device__ __forceinline__ void Run(uint64_t index) const {
    Convert<Elements>(run.segment_type, SegmentOrigin(chunk, run), run.buffer_type,
                      run.buffer_origin, index);
  }
};

struct WriteWork {
  const KernelChunk& chunk;
  const KernelRun& run;

  template <typename Elements>
  __device__ __forceinline__ void Run(uint64_t index) const {
    if (run.keeps_rounded) {
      Keep<Elements>(index);
    } else {
      Convert<Elements>(run.buffer_type, run.buffer_origin, run.segment_type,
                        SegmentOrigin(chunk, run), index);
    }
  }

 private:
  template <typename Elements>
  __device__ __forceinline__ void Keep(uint64_t index) const {
    auto values = Load<Elements>(run.segment_type, SegmentOrigin(chunk, run), index);
    const auto news = Load<Elements>(run.buffer_type, run.buffer_origin, index);
#pragma unroll
    for (uint32_t i = 0; i < Elements::kElements; ++i) {
      const float rounded = Rounded(run.buffer_type, values.values[i]);
      if (__float_as_uint(rounded) != __float_as_uint(news.values[i])) {
        values.values[i] = news.values[i];
      }
    }
    Store<Elements>(run.segment_type, values, SegmentOrigin(chunk, run), index);
  }
};

template <typename Work>
__device__ __forceinline__ void ConvertTile(const KernelChunk& chunk) {
  const KernelTile tile = chunk.tiles[blockIdx.x];
  const KernelRun run = chunk.runs[tile.run];
  ForEachGroup(run, tile.index, Work{chunk, run});
}

}  // namespace
}  // namespace moment::cuda

extern "C" __global__ void __launch_bounds__(moment::cuda::kThreadsPerBlock)
    moment_read_segments(const __grid_constant__ moment::cuda::KernelChunk chunk) {
  moment::cuda::ConvertTile<moment::cuda::ReadWork>(chunk);
}

extern "C" __global__ void __launch_bounds__(moment::cuda::kThreadsPerBlock)
    moment_write_segments(const __grid_constant__ moment::cuda::KernelChunk chunk) {
  moment::cuda::ConvertTile<moment::cuda::WriteWork>(chunk);
}
