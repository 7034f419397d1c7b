#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/device/types.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/tensor_access.h"

namespace moment::pipeline {

// Every segment of a part begins at a multiple of 4096 bytes within its chunk.
inline constexpr uint64_t kPartAlignmentElements = 2048;
// Gradients and parameters lie in a slot at multiples of this.
inline constexpr uint64_t kSlotAlignmentBytes = 16;

// Elements of a chunk that pass through one transport slot together: their gradients in front,
// their parameters behind.
struct Part {
  uint64_t first = 0;  // element within the chunk
  uint64_t count = 0;
  uint64_t first_run = 0;  // of the chunk's runs; the first and the last may reach beyond the part
  uint64_t run_count = 0;
};

struct TensorTypes {
  device::DataType gradient = device::DataType::kFloat32;
  device::DataType parameter = device::DataType::kFloat32;
};

// The arrays that a slot holds for the elements of one tensor, by the bytes of an element; 0: no
// such array.
using SlotArrays = std::array<uint8_t, kSegmentCount>;

// Of a step, a refresh and a materialisation: gradients and parameters.
std::vector<SlotArrays> ArraysOf(const std::vector<TensorTypes>& types);
// Of a Read or Write: what moves through the trainer's buffers.
std::vector<SlotArrays> ArraysOf(const std::vector<TensorAccess>& access);

// How chunks are cut so that each part fits a slot, whoever takes part; a chunk none of whose
// tensors has arrays has no parts. Pure and immutable.
class PartPlan {
 public:
  // `arrays` by tensor. INVALID_ARGUMENT if a slot is too small for the smallest part.
  static absl::StatusOr<PartPlan> Create(const ChunkPlan& plan,
                                         const std::vector<SlotArrays>& arrays,
                                         uint64_t slot_bytes);
  PartPlan() = default;

  std::span<const Part> parts(uint32_t chunk) const {
    return std::span(parts_).subspan(first_[chunk], first_[chunk + 1] - first_[chunk]);
  }
  uint64_t max_runs() const { return max_runs_; }

 private:
  absl::Status Cut(std::span<const ChunkRun> runs, const std::vector<SlotArrays>& arrays,
                   uint64_t elements, uint64_t slot_bytes);

  std::vector<Part> parts_;
  std::vector<uint64_t> first_;  // by chunk
  uint64_t max_runs_ = 0;        // of one part
};

}  // namespace moment::pipeline
