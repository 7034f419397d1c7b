#pragma once

#include <cstdint>

#include "daemon/device/types.h"

// What the host passes to the kernels: plain data, the same on both sides.
namespace moment::cuda {

// A thread works on a group of this many elements, with one access of up to 16 bytes an array.
inline constexpr uint32_t kGroupElements = 4;
inline constexpr uint32_t kThreadsPerBlock = 256;
// A block works on a tile: groups that lie at multiples of their size within the chunk. A run's
// first and last group may reach beyond the run.
inline constexpr uint32_t kGroupsPerThread = 4;
inline constexpr uint64_t kTileElements =
    uint64_t{kGroupElements} * kThreadsPerBlock * kGroupsPerThread;

// Elements of a run with addresses on the GPU. An origin is where element 0 of the chunk would lie
// if the run reached that far, so that all arrays have one index; it wraps like any unsigned
// number.
struct KernelRun {
  uint64_t first = 0;  // element within the chunk
  uint64_t end = 0;
  uint64_t gradient_origin = 0;  // Adam
  uint64_t buffer_origin = 0;    // the parameter, or what a segment is read into or written from
  uint32_t scalars = 0;          // Adam: index
  device::DataType gradient_type = device::DataType::kFloat32;
  device::DataType buffer_type = device::DataType::kFloat32;
  // Not Adam: the segment that is converted, and its type.
  uint8_t segment = 0;
  device::DataType segment_type = device::DataType::kFloat32;
  // Not Adam: what rounds to the buffer's bits stays.
  bool keeps_rounded = false;
};

// A block's work: the `index`-th tile of a run.
struct KernelTile {
  uint32_t run = 0;
  uint32_t index = 0;
};

// The arrays of a chunk, aligned to 16 bytes at least, and its tables.
struct KernelChunk {
  void* segments[3] = {};  // main, exp_avg, exp_avg_sq
  const KernelRun* runs = nullptr;
  const KernelTile* tiles = nullptr;
  const void* scalars = nullptr;
};

}  // namespace moment::cuda
