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
  ChunkExtent extent = WholeExtent(chunk);
  uint64_t next = 0;
  ForEachUnit(chunk, extent, frame->data, [&](int segment, uint64_t unit, std::byte*, uint64_t) {
    image.set_checksum(chunk.segments[segment].first_checksum + unit, frame->checksums[next++]);
  });
  if (main_only) {
    extent.units[device::kExpAvg] = {};
    extent.units[device::kExpAvgSq] = {};
  }
  return Submit(frame, image, io::IoOp::kWrite, extent, io_class);
}

void ChunkIo::OnRequestDone(IoRequest* request) noexcept {
  auto* frame = static_cast<Frame*>(request->context);
  if (frame->pending.fetch_sub(1) != 1) {
    return;
  }
  auto* self = static_cast<ChunkIo*>(frame->io);
  frame->status = RequestStatus(frame);
  if (request->op == io::IoOp::kRead && frame->status.ok()) {
    frame->task.run = RunVerify;
    frame->task.frame = frame;
    self->workers_.Post(&frame->task);
    return;
  }
  self->PostResult(frame, request->op == io::IoOp::kRead ? OnReadEvent : OnWrittenEvent);
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

void ChunkIo::OnSealedEvent(Event* event) noexcept {
  auto* frame = static_cast<Frame*>(event->context);
  static_cast<ChunkIo*>(frame->io)->listener_.OnSealed(frame);
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

void ChunkIo::Seal(Frame* frame, const SealOptions& options) {
  frame->io = this;
  frame->seal_from = options.copy_from;
  frame->seal_zero_moments = options.zero_moments;
  frame->seal_zeros = options.zeros;
  frame->task.run = RunSeal;
  frame->task.frame = frame;
  workers_.Post(&frame->task);
}

void ChunkIo::RunSeal(base::WorkerPool::Task* task) noexcept {
  auto* frame = static_cast<FrameTask*>(task)->frame;
  auto* self = static_cast<ChunkIo*>(frame->io);
  self->SealBytes(frame);
  self->PostResult(frame, OnSealedEvent);
}

void ChunkIo::SealBytes(Frame* frame) const {
  const Chunk& chunk = plan_.chunks()[frame->chunk];
  for (int s = 0; s < kSegmentCount; ++s) {
    const SegmentExtent& extent = chunk.segments[s];
    std::byte* data = frame->data + extent.frame_offset;
    if (s != device::kMain && frame->seal_zero_moments) {
      std::memset(data, 0, extent.length_bytes);
      continue;
    }
    if (frame->seal_from != nullptr) {
      std::memcpy(data, frame->seal_from->data + extent.frame_offset, extent.data_bytes);
    }
    std::memset(data + extent.data_bytes, 0, extent.length_bytes - extent.data_bytes);
  }
  ZeroSegments(frame);
  uint64_t next = 0;
  ForEachUnit(chunk, WholeExtent(chunk), frame->data,
              [&](int, uint64_t, const std::byte* data, uint64_t bytes) {
                frame->checksums[next++] = XXH3_64bits(data, bytes);
              });
}

void ChunkIo::ZeroSegments(Frame* frame) const {
  if (frame->seal_zeros.empty()) {
    return;
  }
  const Chunk& chunk = plan_.chunks()[frame->chunk];
  for (const ChunkRun& run : plan_.runs(chunk)) {
    for (int s = 0; s < kSegmentCount; ++s) {
      if (frame->seal_zeros[run.tensor].access[s] == Access::kZeros) {
        const uint64_t size = device::SizeBytes(plan_.types(chunk)[s]);
        std::memset(frame->data + chunk.segments[s].frame_offset + run.chunk_first * size, 0,
                    run.count * size);
      }
    }
  }
}

void ChunkIo::Expedite(Frame* frame) {
  for (int r = 0; r < frame->request_count; ++r) {
    scheduler_.Expedite(&frame->requests[r]);
  }
}

void ChunkIo::Cancel(Frame* frame) {
  for (int r = 0; r < frame->request_count; ++r) {
    scheduler_.Cancel(&frame->requests[r]);
  }
}

}  // namespace moment::pipeline
