#include "daemon/device/chunk_check.h"

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/device/segment_types.h"

namespace moment::device {
namespace {

absl::Status CheckSegments(const ChunkWork& work) {
  if (work.in.data[kMain] == nullptr) {
    return absl::InvalidArgumentError("chunk without mains");
  }
  if (work.op == ChunkOp::kMaterialize) {
    return absl::OkStatus();
  }
  for (int s = 0; s < kSegmentCount; ++s) {
    const bool reads = s == kMain || !work.moments_zero;
    const bool writes = !OnlyReads(work.op);
    if ((writes && work.out.data[s] == nullptr) || (reads && work.in.data[s] == nullptr)) {
      return absl::InvalidArgumentError(absl::StrCat("chunk without memory of segment ", s));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRun(const ChunkWork& work, const Run& run, uint64_t previous_end) {
  const auto refuse = [&run](absl::string_view reason) {
    return absl::InvalidArgumentError(absl::StrCat("run of tensor ", run.tensor, ": ", reason));
  };
  if (run.first < previous_end || run.first > work.elements ||
      run.count > work.elements - run.first) {
    return refuse("out of order or outside of its chunk");
  }
  const bool by_buffers = work.op == ChunkOp::kRead || work.op == ChunkOp::kWrite;
  if (!run.participates || run.count == 0 || by_buffers) {
    return absl::OkStatus();
  }
  if (run.parameter == nullptr) {
    return refuse("no parameter buffer");
  }
  if (work.op != ChunkOp::kAdam) {
    return absl::OkStatus();
  }
  if (run.gradient == nullptr) {
    return refuse("no gradient buffer");
  }
  if (run.hyperparameters >= work.hyperparameters.size() || run.t == 0) {
    return refuse("no such hyperparameters, or a step of zero");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckChunk(const ChunkWork& work) {
  MOMENT_RETURN_IF_ERROR(CheckSegmentTypes(work.segment_types));
  MOMENT_RETURN_IF_ERROR(CheckSegments(work));
  uint64_t previous_end = 0;
  for (const Run& run : work.runs) {
    MOMENT_RETURN_IF_ERROR(CheckRun(work, run, previous_end));
    previous_end = run.first + run.count;
  }
  return absl::OkStatus();
}

}  // namespace moment::device
