#include "tests/bench/disk_limits.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "daemon/base/errors.h"

namespace moment::bench {
namespace {

using Clock = std::chrono::steady_clock;
using pipeline::kSegmentCount;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

struct DiskLimits::Buffer {
  base::AlignedBuffer memory;
  uint32_t chunk = 0;
  io::IoOp op = io::IoOp::kRead;
  pipeline::IoRequest requests[kSegmentCount];
  std::atomic<int> pending{0};
  Finished* finished = nullptr;
};

// Buffers whose transfers have ended, for the one thread that waits for them.
class DiskLimits::Finished {
 public:
  void Push(Buffer* buffer) {
    absl::MutexLock lock(&mutex_);
    buffers_.push_back(buffer);
  }
  Buffer* Pop() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(
        +[](std::deque<Buffer*>* buffers) { return !buffers->empty(); }, &buffers_));
    Buffer* buffer = buffers_.front();
    buffers_.pop_front();
    return buffer;
  }

 private:
  absl::Mutex mutex_;
  std::deque<Buffer*> buffers_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<DiskLimits>> DiskLimits::Create(const Options& options,
                                                               const store::Layout& layout) {
  std::unique_ptr<DiskLimits> limits(new DiskLimits(options, layout));
  MOMENT_RETURN_IF_ERROR(limits->Prepare(layout));
  return limits;
}

DiskLimits::DiskLimits(const Options& options, const store::Layout& layout)
    : options_(options),
      plan_(layout, options.chunk_bytes),
      finished_(std::make_unique<Finished>()),
      scheduler_(*options.engine, options.io_depth),
      share_(scheduler_.OpenShare()) {}

DiskLimits::~DiskLimits() { scheduler_.CloseShare(share_); }

absl::Status DiskLimits::Prepare(const store::Layout& layout) {
  for (uint32_t i = 0; i < options_.buffers; ++i) {
    auto buffer = std::make_unique<Buffer>();
    MOMENT_ASSIGN_OR_RETURN(buffer->memory, base::AlignedBuffer::Allocate(plan_.frame_bytes()));
    buffer->finished = finished_.get();
    buffers_.push_back(std::move(buffer));
  }
  for (size_t b = 0; b < layout.buckets().size(); ++b) {
    io::OpenOptions open;
    open.mode = io::OpenMode::kCreate;
    open.direct = options_.direct_io;
    MOMENT_ASSIGN_OR_RETURN(
        auto file, options_.files->Open(absl::StrCat(options_.directory, "/limits", b), open));
    const uint64_t bytes = layout.buckets()[b].file_bytes;
    MOMENT_RETURN_IF_ERROR(file->Allocate(bytes));
    const base::AlignedBuffer& memory = buffers_.front()->memory;
    for (uint64_t at = 0; at < bytes; at += memory.size()) {
      MOMENT_RETURN_IF_ERROR(io::Write(*options_.engine, *file, at, memory.data(),
                                       std::min(memory.size(), bytes - at)));
    }
    targets_.push_back(std::move(file));
  }
  return SyncAll();
}

void DiskLimits::Submit(Buffer& buffer, io::IoOp op, const store::State& state) {
  const pipeline::Chunk& chunk = plan_.chunks()[buffer.chunk];
  buffer.op = op;
  buffer.pending.store(kSegmentCount);
  for (int s = 0; s < kSegmentCount; ++s) {
    pipeline::IoRequest& request = buffer.requests[s];
    request.op = op;
    request.file =
        op == io::IoOp::kRead ? &state.images[chunk.bucket]->file() : targets_[chunk.bucket].get();
    request.offset = chunk.segments[s].file_offset;
    request.data = buffer.memory.data() + chunk.segments[s].frame_offset;
    request.length = chunk.segments[s].length_bytes;
    request.context = &buffer;
    request.done = [](pipeline::IoRequest* self) noexcept {
      auto* of = static_cast<Buffer*>(self->context);
      if (of->pending.fetch_sub(1) == 1) {
        of->finished->Push(of);
      }
    };
  }
  for (pipeline::IoRequest& request : buffer.requests) {
    scheduler_.Submit(share_, &request, pipeline::IoClass::kStep);
  }
}

absl::StatusOr<double> DiskLimits::RawSeconds(const store::State& state) {
  const Clock::time_point begin = Clock::now();
  const auto chunks = static_cast<uint32_t>(plan_.chunks().size());
  uint32_t next = 0;
  uint32_t busy = 0;
  auto start_read = [&](Buffer& buffer) {
    if (next < chunks) {
      buffer.chunk = next++;
      ++busy;
      Submit(buffer, io::IoOp::kRead, state);
    }
  };
  for (const auto& buffer : buffers_) {
    start_read(*buffer);
  }
  absl::Status status;
  while (busy > 0) {
    Buffer* buffer = finished_->Pop();
    for (const pipeline::IoRequest& request : buffer->requests) {
      status.Update(request.status);
    }
    if (buffer->op == io::IoOp::kRead && status.ok()) {
      Submit(*buffer, io::IoOp::kWrite, state);
      continue;
    }
    --busy;
    if (status.ok()) {
      start_read(*buffer);
    }
  }
  MOMENT_RETURN_IF_ERROR(status);
  MOMENT_RETURN_IF_ERROR(SyncAll());
  return SecondsSince(begin);
}

absl::Status DiskLimits::MoveAndWait(Buffer& buffer, io::IoOp op, const store::State& state) {
  Submit(buffer, op, state);
  finished_->Pop();
  absl::Status status;
  for (const pipeline::IoRequest& request : buffer.requests) {
    status.Update(request.status);
  }
  return status;
}

absl::StatusOr<double> DiskLimits::SerialSeconds(const store::State& state,
                                                 std::span<const std::byte> gradients,
                                                 std::span<std::byte> parameters) {
  const Clock::time_point begin = Clock::now();
  Buffer& buffer = *buffers_.front();
  for (uint32_t chunk = 0; chunk < plan_.chunks().size(); ++chunk) {
    buffer.chunk = chunk;
    MOMENT_RETURN_IF_ERROR(MoveAndWait(buffer, io::IoOp::kRead, state));
    MOMENT_RETURN_IF_ERROR(Compute(buffer, gradients, parameters));
    MOMENT_RETURN_IF_ERROR(MoveAndWait(buffer, io::IoOp::kWrite, state));
  }
  MOMENT_RETURN_IF_ERROR(SyncAll());
  return SecondsSince(begin);
}

absl::Status DiskLimits::Compute(Buffer& buffer, std::span<const std::byte> gradients,
                                 std::span<std::byte> parameters) {
  const pipeline::Chunk& chunk = plan_.chunks()[buffer.chunk];
  const device::DataType* types = plan_.types(chunk);
  device::Hyperparameters hyperparameters;
  hyperparameters.lr = 1e-3;
  hyperparameters.beta1 = 0.9;
  hyperparameters.beta2 = 0.999;
  hyperparameters.eps = 1e-8;
  hyperparameters.weight_decay = 0.01;
  device::Run run;
  run.count = chunk.elements;
  run.t = 10;
  run.gradient = gradients.data();
  run.parameter = parameters.data();
  absl::Notification done;
  absl::Status status;
  struct Result {
    absl::Notification* done;
    absl::Status* status;
  } result{&done, &status};
  device::ChunkWork work;
  work.elements = chunk.elements;
  for (int s = 0; s < kSegmentCount; ++s) {
    work.segment_types[s] = types[s];
    work.in.data[s] = buffer.memory.data() + chunk.segments[s].frame_offset;
    work.out.data[s] = work.in.data[s];
  }
  work.runs = {&run, 1};
  work.hyperparameters = {&hyperparameters, 1};
  work.context = &result;
  work.done = [](device::ChunkWork* self, absl::Status of) noexcept {
    auto* to = static_cast<Result*>(self->context);
    *to->status = std::move(of);
    to->done->Notify();
  };
  options_.device->Submit(&work);
  done.WaitForNotification();
  return status;
}

absl::Status DiskLimits::SyncAll() {
  for (const auto& file : targets_) {
    MOMENT_RETURN_IF_ERROR(io::Sync(*options_.engine, *file));
  }
  return absl::OkStatus();
}

}  // namespace moment::bench
