#include "daemon/pipeline/part_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"

namespace moment::pipeline {
namespace {

uint64_t SlotBytes(const SlotArrays& arrays, uint64_t count) {
  uint64_t bytes = 0;
  for (const uint64_t element_bytes : arrays) {
    bytes += base::RoundUp(count * element_bytes, kSlotAlignmentBytes);
  }
  return bytes;
}

// Walks the blocks of kPartAlignmentElements of one chunk.
class BlockWalk {
 public:
  BlockWalk(std::span<const ChunkRun> runs, const std::vector<SlotArrays>& arrays,
            uint64_t elements)
      : runs_(runs), arrays_(arrays), elements_(elements) {}

  bool done() const { return position_ == elements_; }
  uint64_t position() const { return position_; }
  uint64_t run() const { return run_; }  // that holds the position
  // The run behind the last one the block before the position touches.
  uint64_t runs_touched() const { return touched_; }

  // Slot bytes of the next block, which is then behind.
  uint64_t Next() {
    const uint64_t end = std::min(elements_, position_ + kPartAlignmentElements);
    uint64_t bytes = 0;
    while (position_ < end) {
      const ChunkRun& run = runs_[run_];
      const uint64_t run_end = run.chunk_first + run.count;
      const uint64_t count = std::min(end, run_end) - position_;
      bytes += SlotBytes(arrays_[run.tensor], count);
      position_ += count;
      touched_ = run_ + 1;
      run_ += position_ == run_end ? 1 : 0;
    }
    return bytes;
  }

 private:
  std::span<const ChunkRun> runs_;
  const std::vector<SlotArrays>& arrays_;
  uint64_t elements_;
  uint64_t position_ = 0;
  uint64_t run_ = 0;
  uint64_t touched_ = 0;
};

}  // namespace

std::vector<SlotArrays> ArraysOf(const std::vector<TensorTypes>& types) {
  std::vector<SlotArrays> arrays;
  arrays.reserve(types.size());
  for (const TensorTypes& tensor : types) {
    arrays.push_back({static_cast<uint8_t>(device::SizeBytes(tensor.gradient)),
                      static_cast<uint8_t>(device::SizeBytes(tensor.parameter))});
  }
  return arrays;
}

std::vector<SlotArrays> ArraysOf(const std::vector<TensorAccess>& access) {
  std::vector<SlotArrays> arrays(access.size());
  for (size_t i = 0; i < access.size(); ++i) {
    for (int s = 0; s < kSegmentCount; ++s) {
      const bool moves = access[i].access[s] == Access::kBuffer;
      arrays[i][static_cast<size_t>(s)] =
          static_cast<uint8_t>(moves ? device::SizeBytes(access[i].types[s]) : 0);
    }
  }
  return arrays;
}

absl::StatusOr<PartPlan> PartPlan::Create(const ChunkPlan& plan,
                                          const std::vector<SlotArrays>& arrays,
                                          uint64_t slot_bytes) {
  const auto has_arrays = [&arrays](const ChunkRun& run) {
    return arrays[run.tensor] != SlotArrays{};
  };
  PartPlan parts;
  parts.first_.reserve(plan.chunks().size() + 1);
  for (const Chunk& chunk : plan.chunks()) {
    parts.first_.push_back(parts.parts_.size());
    const auto runs = plan.runs(chunk);
    if (std::any_of(runs.begin(), runs.end(), has_arrays)) {
      MOMENT_RETURN_IF_ERROR(parts.Cut(runs, arrays, chunk.elements, slot_bytes));
    }
  }
  parts.first_.push_back(parts.parts_.size());
  return parts;
}

// Appends the parts of one chunk.
absl::Status PartPlan::Cut(std::span<const ChunkRun> runs, const std::vector<SlotArrays>& arrays,
                           uint64_t elements, uint64_t slot_bytes) {
  BlockWalk walk(runs, arrays, elements);
  Part part;
  uint64_t part_bytes = 0;
  while (!walk.done()) {
    const uint64_t start = walk.position();
    const uint64_t start_run = walk.run();
    const uint64_t block_bytes = walk.Next();
    if (block_bytes > slot_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("a transport slot of ", slot_bytes, " bytes is too small: ", block_bytes,
                       " bytes are needed for ", kPartAlignmentElements, " elements"));
    }
    if (part.count > 0 && part_bytes + block_bytes > slot_bytes) {
      parts_.push_back(part);
      part = Part{};
      part_bytes = 0;
    }
    if (part.count == 0) {
      part.first = start;
      part.first_run = start_run;
    }
    part.count = walk.position() - part.first;
    part.run_count = walk.runs_touched() - part.first_run;
    part_bytes += block_bytes;
    max_runs_ = std::max(max_runs_, part.run_count);
  }
  parts_.push_back(part);
  return absl::OkStatus();
}

}  // namespace moment::pipeline
