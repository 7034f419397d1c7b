#include "daemon/pipeline/chunk_io.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moment::pipeline {
namespace {

// Runs `visit(segment, unit within the chunk, data, bytes)` for each unit of the extent.
template <typename Visit>
void ForEachUnit(const Chunk& chunk, const ChunkExtent& of, std::byte* data, Visit visit) {
  for (int s = 0; s < kSegmentCount; ++s) {
    const SegmentExtent& extent = chunk.segments[s];
    const uint64_t end = of.units[s].first + of.units[s].count;
    for (uint64_t unit = of.units[s].first; unit < end; ++unit) {
      const uint64_t offset = unit * store::kChecksumUnitBytes;
      const uint64_t bytes = std::min(store::kChecksumUnitBytes, extent.length_bytes - offset);
      visit(s, unit, data + extent.frame_offset + offset, bytes);
    }
  }
}

}  // namespace

ChunkIo::ChunkIo(const ChunkPlan& plan, IoScheduler& scheduler, base::WorkerPool& workers,
                 EventLoop& loop, Listener& listener)
    : plan_(plan),
      scheduler_(scheduler),
      workers_(workers),
      loop_(loop),
      listener_(listener),
      share_(scheduler.OpenShare()) {}

ChunkIo::~ChunkIo() { scheduler_.CloseShare(share_); }

uint64_t ChunkIo::Submit(Frame* frame, store::BucketImage& image, io::IoOp op,
                         const ChunkExtent& extent, IoClass io_class) {
  const Chunk& chunk = plan_.chunks()[frame->chunk];
  frame->io = this;
  frame->image = &image;
  frame->extent = extent;
  frame->status = absl::OkStatus();
  frame->request_count = 0;
  for (int s = 0; s < kSegmentCount; ++s) {
    if (extent.units[s].count == 0) {
      continue;
    }
    const SegmentExtent& segment = chunk.segments[s];
    const uint64_t begin = extent.units[s].first * store::kChecksumUnitBytes;
    const uint64_t bytes = extent.units[s].count * store::kChecksumUnitBytes;
    IoRequest& request = frame->requests[frame->request_count++];
    request.op = op;
    request.file = &image.file();
    request.offset = segment.file_offset + begin;
    request.data = frame->data + segment.frame_offset + begin;
    request.length = std::min(bytes, segment.length_bytes - begin);
    request.done = OnRequestDone;
    request.context = frame;
  }
  frame->pending.store(frame->request_count);
  for (int r = 0, count = frame->request_count; r < count; ++r) {
    scheduler_.Submit(share_, &frame->requests[r], io_class);
  }
  return extent.bytes(chunk);
}

uint64_t ChunkIo::Read(Frame* frame, store::BucketImage& image, const ChunkExtent& extent,
                       IoClass io_class) {
  frame->moments_zero = image.moments_zero();
  ChunkExtent needed = extent;
  for (int s = 0; s < kSegmentCount; ++s) {
    needed.units[s] = s != device::kMain && image.moments_zero() ? UnitRange{} : needed.units[s];
  }
  return Submit(frame, image, io::IoOp::kRead, needed, io_class);
}

uint64_t ChunkIo::Write(Frame* frame, store::BucketImage& image, bool main_only, IoClass io_class) {
  const Chunk& chunk = plan_.chunks()[frame->chunk];
  frame->image = &image;
  frame->extent = WholeExtent(chunk);
  if (main_only) {
    frame->extent.units[device::kExpAvg] = {};
    frame->extent.units[device::kExpAvgSq] = {};
  }
  frame->io_class = io_class;
  frame->checksumming = true;
  frame->cancelled = false;
  PostTask(frame, RunChecksums);
  return frame->extent.bytes(chunk);
}

void ChunkIo::RunChecksums(base::WorkerPool::Task* task) noexcept {
  auto* frame = static_cast<FrameTask*>(task)->frame;
  auto* self = static_cast<ChunkIo*>(frame->io);
  self->ComputeChecksums(frame);
  self->PostResult(frame, OnChecksumsEvent);
}

void ChunkIo::ComputeChecksums(Frame* frame) const {
  const Chunk& chunk = plan_.chunks()[frame->chunk];
  for (const SegmentExtent& extent : chunk.segments) {
    std::memset(frame->data + extent.frame_offset + extent.data_bytes, 0,
                extent.length_bytes - extent.data_bytes);
  }
  uint64_t next = 0;
  ForEachUnit(chunk, WholeExtent(chunk), frame->data,
              [&](int, uint64_t, const std::byte* data, uint64_t bytes) {
                frame->checksums[next++] = XXH3_64bits(data, bytes);
              });
}

void ChunkIo::OnChecksumsEvent(Event* event) noexcept {
  auto* frame = static_cast<Frame*>(event->context);
  auto* self = static_cast<ChunkIo*>(frame->io);
  frame->checksumming = false;
  if (frame->cancelled) {
    self->listener_.OnWritten(frame, absl::CancelledError("the write was not needed any more"));
    return;
  }
  self->SubmitWrite(frame);
}

void ChunkIo::SubmitWrite(Frame* frame) {
  const Chunk& chunk = plan_.chunks()[frame->chunk];
  uint64_t next = 0;
  ForEachUnit(chunk, WholeExtent(chunk), frame->data,
              [&](int segment, uint64_t unit, std::byte*, uint64_t) {
                frame->image->set_checksum(chunk.segments[segment].first_checksum + unit,
                                           frame->checksums[next++]);
              });
  Submit(frame, *frame->image, io::IoOp::kWrite, frame->extent, frame->io_class);
}

void ChunkIo::OnRequestDone(IoRequest* request) noexcept {
  auto* frame = static_cast<Frame*>(request->context);
  if (frame->pending.fetch_sub(1) != 1) {
    return;
  }
  auto* self = static_cast<ChunkIo*>(frame->io);
  frame->status = RequestStatus(frame);
  if (request->op == io::IoOp::kRead && frame->status.ok()) {
    self->PostTask(frame, RunVerify);
    return;
  }
  self->PostResult(frame, request->op == io::IoOp::kRead ? OnReadEvent : OnWrittenEvent);
}

void ChunkIo::PostTask(Frame* frame, void (*run)(base::WorkerPool::Task*) noexcept) {
  frame->io = this;
  frame->task.run = run;
  frame->task.frame = frame;
  workers_.Post(&frame->task);
}

void ChunkIo::PostResult(Frame* frame, void (*run)(Event*) noexcept) {
  frame->event.run = run;
  frame->event.context = frame;
  loop_.Post(&frame->event);
}

absl::Status ChunkIo::RequestStatus(Frame* frame) {
  for (int r = 0; r < frame->request_count; ++r) {
    const absl::Status& status = frame->requests[r].status;
    if (!status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

void ChunkIo::OnReadEvent(Event* event) noexcept {
  auto* frame = static_cast<Frame*>(event->context);
  static_cast<ChunkIo*>(frame->io)->listener_.OnRead(frame, std::move(frame->status));
}

void ChunkIo::OnFilledEvent(Event* event) noexcept {
  auto* frame = static_cast<Frame*>(event->context);
  static_cast<ChunkIo*>(frame->io)->listener_.OnFilled(frame);
}

void ChunkIo::OnWrittenEvent(Event* event) noexcept {
  auto* frame = static_cast<Frame*>(event->context);
  static_cast<ChunkIo*>(frame->io)->listener_.OnWritten(frame, std::move(frame->status));
}

void ChunkIo::RunVerify(base::WorkerPool::Task* task) noexcept {
  auto* frame = static_cast<FrameTask*>(task)->frame;
  auto* self = static_cast<ChunkIo*>(frame->io);
  frame->status = self->Verify(frame);
  self->PostResult(frame, OnReadEvent);
}

absl::Status ChunkIo::Verify(Frame* frame) const {
  const Chunk& chunk = plan_.chunks()[frame->chunk];
  const store::BucketImage& image = *frame->image;
  absl::Status status;
  ForEachUnit(
      chunk, frame->extent, frame->data,
      [&](int segment, uint64_t unit, const std::byte* data, uint64_t bytes) {
        const SegmentExtent& extent = chunk.segments[segment];
        const uint64_t expected = image.checksum(extent.first_checksum + unit);
        if (status.ok() && XXH3_64bits(data, bytes) != expected) {
          status = absl::DataLossError(absl::StrCat(
              "checksum of ", store::SegmentName(segment), " differs in ", image.file().path(),
              " at offset ", extent.file_offset + unit * store::kChecksumUnitBytes, ", ", bytes,
              " bytes; roll back to another commit or load a save"));
        }
      });
  return status;
}

void ChunkIo::Fill(Frame* frame, const FillOptions& options) {
  frame->fill_from = options.copy_from;
  frame->fill_zero_moments = options.zero_moments;
  frame->fill_zeros = options.zeros;
  PostTask(frame, RunFill);
}

void ChunkIo::RunFill(base::WorkerPool::Task* task) noexcept {
  auto* frame = static_cast<FrameTask*>(task)->frame;
  auto* self = static_cast<ChunkIo*>(frame->io);
  self->FillBytes(frame);
  self->PostResult(frame, OnFilledEvent);
}

void ChunkIo::FillBytes(Frame* frame) const {
  const Chunk& chunk = plan_.chunks()[frame->chunk];
  for (int s = 0; s < kSegmentCount; ++s) {
    const SegmentExtent& extent = chunk.segments[s];
    std::byte* data = frame->data + extent.frame_offset;
    if (s != device::kMain && frame->fill_zero_moments) {
      std::memset(data, 0, extent.length_bytes);
      continue;
    }
    if (frame->fill_from != nullptr) {
      std::memcpy(data, frame->fill_from->data + extent.frame_offset, extent.data_bytes);
    }
  }
  ZeroSegments(frame);
}

void ChunkIo::ZeroSegments(Frame* frame) const {
  if (frame->fill_zeros.empty()) {
    return;
  }
  const Chunk& chunk = plan_.chunks()[frame->chunk];
  for (const ChunkRun& run : plan_.runs(chunk)) {
    for (int s = 0; s < kSegmentCount; ++s) {
      if (frame->fill_zeros[run.tensor].access[s] == Access::kZeros) {
        const uint64_t size = device::SizeBytes(plan_.types(chunk)[s]);
        std::memset(frame->data + chunk.segments[s].frame_offset + run.chunk_first * size, 0,
                    run.count * size);
      }
    }
  }
}

void ChunkIo::Expedite(Frame* frame) {
  if (frame->checksumming) {
    frame->io_class = IoClass::kStep;
    return;
  }
  for (int r = 0; r < frame->request_count; ++r) {
    scheduler_.Expedite(&frame->requests[r]);
  }
}

void ChunkIo::Cancel(Frame* frame) {
  if (frame->checksumming) {
    frame->cancelled = true;
    return;
  }
  for (int r = 0; r < frame->request_count; ++r) {
    scheduler_.Cancel(&frame->requests[r]);
  }
}

}  // namespace moment::pipeline
