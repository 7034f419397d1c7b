#include "cuda/staging_slot.h"

#include "daemon/base/errors.h"
#include "daemon/base/failpoint.h"

namespace moment::cuda {

namespace {

// Where nothing is mapped: a kernel that gets there ends the process's use of the GPU.
constexpr uint64_t kUnmapped = 0x1000;

}  // namespace

absl::StatusOr<std::unique_ptr<StagingSlot>> StagingSlot::Create(const Context& context,
                                                                 const KernelModules& kernels,
                                                                 const SlotLayout& layout,
                                                                 CUdeviceptr memory) {
  std::unique_ptr<StagingSlot> slot(new StagingSlot(context, kernels, layout, memory));
  MOMENT_ASSIGN_OR_RETURN(slot->tables_, AllocatePinnedMemory(context, layout.table_bytes));
  MOMENT_ASSIGN_OR_RETURN(slot->stream_, MakeStream(context));
  MOMENT_ASSIGN_OR_RETURN(slot->before_kernels_, MakeEvent(context));
  MOMENT_ASSIGN_OR_RETURN(slot->behind_kernels_, MakeEvent(context));
  MOMENT_ASSIGN_OR_RETURN(slot->done_, MakeEvent(context));
  slot->plan_.in.reserve(layout.limits.max_runs + device::kSegmentCount);
  slot->plan_.out.reserve(layout.limits.max_runs + device::kSegmentCount);
  slot->plan_.cleared.reserve(device::kSegmentCount);
  return slot;
}

absl::Status StagingSlot::Start(const device::ChunkWork& work, const Piece& piece,
                                const RegisteredRanges& registered) {
  PlanPiece(work, piece, layout_, registered, memory_, tables_.get(), plan_);
  if (plan_.slot_bytes > layout_.table_bytes + layout_.limits.data_bytes ||
      plan_.table_bytes > layout_.table_bytes) {
    return absl::InternalError("a piece of a chunk is larger than its staging slot");
  }
  const ContextGuard guard(context_);
  absl::Status status = Enqueue(work);
  if (!status.ok()) {
    // What was enqueued before must not touch the caller's memory later. What this wait finds is
    // no news.
    context_.driver().cuStreamSynchronize(stream_.get());
  }
  return status;
}

absl::Status StagingSlot::Enqueue(const device::ChunkWork& work) {
  const Driver& driver = context_.driver();
  MOMENT_RETURN_IF_ERROR(CopyIn());
  MOMENT_RETURN_IF_ERROR(driver.Check(driver.cuEventRecord(before_kernels_.get(), stream_.get()),
                                      "record", "an event"));
  MOMENT_RETURN_IF_ERROR(Compute(work));
  MOMENT_RETURN_IF_ERROR(driver.Check(driver.cuEventRecord(behind_kernels_.get(), stream_.get()),
                                      "record", "an event"));
  MOMENT_RETURN_IF_ERROR(CopyOut());
  return driver.Check(driver.cuEventRecord(done_.get(), stream_.get()), "record", "an event");
}

absl::Status StagingSlot::CopyIn() {
  const Driver& driver = context_.driver();
  const auto copy = [&](uint64_t offset, const std::byte* host, uint64_t length_bytes) {
    return driver.Check(
        driver.cuMemcpyHtoDAsync(memory_ + offset, host, length_bytes, stream_.get()),
        "copy a chunk to", "the GPU");
  };
  if (plan_.tile_count > 0) {
    MOMENT_RETURN_IF_ERROR(copy(0, tables_.get(), plan_.table_bytes));
  }
  for (const HostCopy& in : plan_.in) {
    MOMENT_RETURN_IF_ERROR(copy(in.slot_offset, in.host, in.length_bytes));
  }
  for (const SlotArea& area : plan_.cleared) {
    MOMENT_RETURN_IF_ERROR(driver.Check(
        driver.cuMemsetD8Async(memory_ + area.offset, 0, area.length_bytes, stream_.get()), "clear",
        "memory of the GPU"));
  }
  return absl::OkStatus();
}

absl::Status StagingSlot::Compute(const device::ChunkWork& work) {
  if (plan_.tile_count == 0) {
    return absl::OkStatus();
  }
  if (work.op == device::ChunkOp::kAdam && CompletesScalars(work.profile)) {
    MOMENT_RETURN_IF_ERROR(
        kernels_.CompleteScalars(stream_.get(), work.profile, memory_, plan_.scalar_count));
  }
  const auto at = [this](uint64_t offset) { return reinterpret_cast<void*>(memory_ + offset); };
  KernelChunk chunk;
  for (int s = 0; s < device::kSegmentCount; ++s) {
    chunk.segments[s] = at(plan_.segment_offsets[s]);
  }
  if (!base::Failpoint("cuda.fault").ok()) {
    chunk.segments[device::kMain] = reinterpret_cast<void*>(kUnmapped);
  }
  chunk.scalars = at(0);
  chunk.runs = static_cast<const KernelRun*>(at(plan_.runs_offset));
  chunk.tiles = static_cast<const KernelTile*>(at(plan_.tiles_offset));
  return kernels_.Run(stream_.get(), work, chunk, plan_.tile_count);
}

absl::Status StagingSlot::CopyOut() {
  const Driver& driver = context_.driver();
  for (const HostCopy& out : plan_.out) {
    MOMENT_RETURN_IF_ERROR(
        driver.Check(driver.cuMemcpyDtoHAsync(out.host, memory_ + out.slot_offset, out.length_bytes,
                                              stream_.get()),
                     "copy a chunk from", "the GPU"));
  }
  return absl::OkStatus();
}

absl::StatusOr<double> StagingSlot::Finish() {
  const Driver& driver = context_.driver();
  const ContextGuard guard(context_);
  MOMENT_RETURN_IF_ERROR(
      driver.Check(driver.cuEventSynchronize(done_.get()), "compute", "a chunk on the GPU"));
  float milliseconds = 0;
  MOMENT_RETURN_IF_ERROR(driver.Check(
      driver.cuEventElapsedTime(&milliseconds, before_kernels_.get(), behind_kernels_.get()),
      "read the time of", "an event"));
  return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace moment::cuda
