#include "cuda/piece.h"

#include <algorithm>

#include "cuda/buffers.h"
#include "daemon/base/memory.h"

namespace moment::cuda {
namespace {

using device::ChunkOp;
using device::ChunkWork;
using device::Place;
using device::Run;

// Room for the alignment of a buffer, and of a gradient with it.
constexpr uint64_t kBufferOverheadBytes = 128;
// Room for the alignment of the segments.
constexpr uint64_t kPieceOverheadBytes = 2048;

}  // namespace

uint64_t SegmentBytes(const ChunkWork& work) {
  uint64_t bytes = 0;
  for (const device::DataType type : work.segment_types) {
    bytes += device::SizeBytes(type);
  }
  return bytes;
}

RunNeeds NeedsOf(const ChunkWork& work, const Run& run) {
  RunNeeds needs;
  ForEachBuffer(work, run, [&](const Buffer& buffer) {
    ++needs.buffers;
    needs.element_bytes += buffer.place == Place::kHost ? device::SizeBytes(buffer.type) : 0;
  });
  if (needs.buffers > 0 && work.op == ChunkOp::kAdam && run.gradient_place == Place::kHost) {
    needs.element_bytes += device::SizeBytes(run.gradient_type);
  }
  return needs;
}

PieceCursor::PieceCursor(const ChunkWork& work, const SlotLimits& limits)
    : work_(&work), limits_(limits) {
  const uint64_t room = limits.data_bytes - kPieceOverheadBytes;
  const uint64_t total = std::max<uint64_t>(TotalBytes(), 1);
  const uint64_t pieces = (total + room - 1) / room;
  // Cuts fall on multiples of the alignment, at most that far below the share.
  constexpr uint64_t kMostBufferBytes = 12;  // of an element, in fp32
  const uint64_t slack = kPieceAlignmentElements * 2 * (SegmentBytes(work) + kMostBufferBytes);
  piece_bytes_ =
      std::min(room, total / pieces + slack + device::kSegmentCount * kBufferOverheadBytes);
}

uint64_t PieceCursor::TotalBytes() const {
  uint64_t bytes = work_->elements * SegmentBytes(*work_);
  for (const Run& run : work_->runs) {
    const RunNeeds needs = NeedsOf(*work_, run);
    bytes += run.count * needs.element_bytes + needs.buffers * kBufferOverheadBytes;
  }
  return bytes;
}

void PieceCursor::SkipEmptyRuns() {
  while (run_ < work_->runs.size() && work_->runs[run_].count == 0) {
    ++run_;
  }
}

PieceCursor::Span PieceCursor::SpanAtPosition() const {
  Span span;
  span.end = work_->elements;
  span.element_bytes = SegmentBytes(*work_);
  if (run_ == work_->runs.size()) {
    return span;
  }
  const Run& run = work_->runs[run_];
  span.in_run = run.first <= position_;
  span.end = span.in_run ? run.first + run.count : run.first;
  if (span.in_run) {
    const RunNeeds needs = NeedsOf(*work_, run);
    span.element_bytes += needs.element_bytes;
    span.buffers = needs.buffers;
    span.overhead_bytes = needs.buffers * kBufferOverheadBytes;
  }
  return span;
}

Piece PieceCursor::Next() {
  SkipEmptyRuns();
  Piece piece{position_, 0, run_, 0};
  uint64_t left = piece_bytes_;
  for (uint32_t buffers = 0; position_ < work_->elements; SkipEmptyRuns()) {
    const Span span = SpanAtPosition();
    buffers += span.buffers;
    if (buffers > limits_.max_runs) {
      break;
    }
    const uint64_t fit = (left - std::min(left, span.overhead_bytes)) / span.element_bytes;
    if (fit < span.end - position_) {
      const uint64_t cut = base::RoundDown(position_ + fit, kPieceAlignmentElements);
      if (cut > position_) {
        position_ = cut;
        piece.run_count = run_ + (span.in_run ? 1 : 0) - piece.first_run;
      }
      break;
    }
    left -= span.overhead_bytes + (span.end - position_) * span.element_bytes;
    position_ = span.end;
    run_ += span.in_run ? 1 : 0;
    piece.run_count = run_ - piece.first_run;
  }
  piece.count = position_ - piece.first;
  return piece;
}

}  // namespace moment::cuda
