#pragma once

#include <cstdint>

#include "daemon/device/device.h"

namespace moment::cuda {

// What a staging slot has room for.
struct SlotLimits {
  uint64_t data_bytes = 0;   // segments, gradients and the trainer's buffers together
  uint32_t max_runs = 4096;  // runs and buffers of the tables; at least one a segment
};

// Elements of a chunk that pass through a staging slot together.
struct Piece {
  uint64_t first = 0;  // element within the chunk
  uint64_t count = 0;
  uint64_t first_run = 0;  // of the work's runs; the first and the last may reach beyond the piece
  uint64_t run_count = 0;
};

// Cuts within a run fall on multiples of this, so that a run that is aligned like its chunk stays
// so.
inline constexpr uint64_t kPieceAlignmentElements = 64;
// A slot with less room cannot take a piece of any chunk.
inline constexpr uint64_t kMinSlotDataBytes = uint64_t{64} << 10;

// Cuts a checked chunk into pieces of about equal size that fit a slot.
class PieceCursor {
 public:
  PieceCursor() = default;
  PieceCursor(const device::ChunkWork& work, const SlotLimits& limits);

  bool done() const { return work_ == nullptr || position_ == work_->elements; }
  Piece Next();

 private:
  struct Span {
    uint64_t end = 0;
    uint64_t element_bytes = 0;
    uint64_t overhead_bytes = 0;
    uint32_t buffers = 0;
    bool in_run = false;
  };

  uint64_t TotalBytes() const;
  void SkipEmptyRuns();
  Span SpanAtPosition() const;  // up to the end of the run or gap there

  const device::ChunkWork* work_ = nullptr;
  SlotLimits limits_;
  uint64_t piece_bytes_ = 0;
  uint64_t position_ = 0;
  uint64_t run_ = 0;  // the first that ends behind the position
};

// What a run's element takes in a slot beside the segments (what lies on the host travels through
// it), and how many buffers the run has.
struct RunNeeds {
  uint64_t element_bytes = 0;
  uint32_t buffers = 0;
};
RunNeeds NeedsOf(const device::ChunkWork& work, const device::Run& run);
uint64_t SegmentBytes(const device::ChunkWork& work);  // of one element, all segments

}  // namespace moment::cuda
