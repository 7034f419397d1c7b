#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/host_stager.h"
#include "cuda/kernel_arguments.h"
#include "cuda/piece.h"
#include "cuda/registered_ranges.h"
#include "daemon/device/device.h"

namespace moment::cuda {

// A slot of the GPU's memory: the tables of a piece in front, its data behind.
struct SlotLayout {
  uint64_t table_bytes = 0;
  SlotLimits limits;
};

// `limits.data_bytes` is below kMinSlotDataBytes if the slot is too small.
SlotLayout MakeSlotLayout(uint64_t slot_bytes, uint32_t max_runs);

// Bytes of a slot to be cleared.
struct SlotArea {
  uint64_t offset = 0;
  uint64_t length_bytes = 0;
};

// What a piece asks of the copy engines and of the kernels. One a slot, used again and again, so
// that planning allocates nothing after the first pieces.
struct PiecePlan {
  std::vector<HostCopy> in;  // before the kernels; the tables are not among them
  std::vector<SlotArea> cleared;
  std::vector<HostCopy> out;  // behind the kernels
  uint64_t segment_offsets[device::kSegmentCount] = {};

  // Within the tables, packed: scalars at 0.
  uint64_t runs_offset = 0;
  uint64_t tiles_offset = 0;
  uint64_t table_bytes = 0;
  uint32_t scalar_count = 0;
  uint32_t run_count = 0;
  uint32_t tile_count = 0;  // 0: nothing for a kernel to do

  uint64_t slot_bytes = 0;  // that it takes of the slot
};

// Plans a piece of a checked chunk for the slot at `slot_address` and writes its tables to
// `tables`, host memory of layout.table_bytes.
void PlanPiece(const device::ChunkWork& work, const Piece& piece, const SlotLayout& layout,
               const RegisteredRanges& registered, uint64_t slot_address, std::byte* tables,
               PiecePlan& plan);

}  // namespace moment::cuda
