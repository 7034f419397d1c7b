#include "daemon/device/chunk_piece.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/device/adam_constants.h"
#include "daemon/device/chunk_check.h"

namespace moment::device {
namespace {

absl::Status CheckPlaces(const ChunkWork& work) {
  for (const Run& run : work.runs) {
    if (run.gradient_place != Place::kHost || run.parameter_place != Place::kHost) {
      return absl::InvalidArgumentError(absl::StrCat(
          "run of tensor ", run.tensor, ": the host device cannot reach memory of a GPU"));
    }
  }
  return absl::OkStatus();
}

// One piece on its way through the chunk's runs.
class Piece {
 public:
  Piece(const ChunkWork& work, InstructionSet set) : work_(work), set_(set) {}

  void Run(uint64_t begin, uint64_t end) {
    uint64_t position = begin;
    for (const auto* run = FirstRunPast(begin); run != RunsEnd() && run->first < end; ++run) {
      const uint64_t from = std::max(run->first, begin);
      const uint64_t to = std::min(run->first + run->count, end);
      CopyAlong(position, from);
      RunElements(*run, from, to);
      position = std::max(position, to);
    }
    CopyAlong(position, end);
  }

 private:
  using RunType = moment::device::Run;

  const RunType* RunsEnd() const { return work_.runs.data() + work_.runs.size(); }

  const RunType* FirstRunPast(uint64_t element) const {
    return std::partition_point(work_.runs.data(), RunsEnd(), [element](const RunType& run) {
      return run.first + run.count <= element;
    });
  }

  uint64_t Bytes(int segment) const { return SizeBytes(work_.segment_types[segment]); }

  const std::byte* In(int segment, uint64_t element) const {
    return work_.in.data[segment] + element * Bytes(segment);
  }
  std::byte* Out(int segment, uint64_t element) const {
    return work_.out.data[segment] + element * Bytes(segment);
  }

  void CopySegment(int segment, uint64_t from, uint64_t to) const {
    const uint64_t length_bytes = (to - from) * Bytes(segment);
    if (segment != kMain && work_.moments_zero) {
      std::memset(Out(segment, from), 0, length_bytes);
    } else if (work_.in.data[segment] != work_.out.data[segment]) {
      std::memcpy(Out(segment, from), In(segment, from), length_bytes);
    }
  }

  void CopyAlong(uint64_t from, uint64_t to) const {
    if (from >= to || OnlyReads(work_.op)) {
      return;
    }
    for (int segment = 0; segment < kSegmentCount; ++segment) {
      CopySegment(segment, from, to);
    }
  }

  void RunElements(const RunType& run, uint64_t from, uint64_t to) {
    if (from >= to) {
      return;
    }
    if (!run.participates) {
      CopyAlong(from, to);
      return;
    }
    switch (work_.op) {
      case ChunkOp::kAdam:
        Adam(run, from, to);
        return;
      case ChunkOp::kRefresh:
        Refresh(run, from, to);
        CopySegment(kExpAvg, from, to);
        CopySegment(kExpAvgSq, from, to);
        return;
      case ChunkOp::kMaterialize:
        Convert(kMain, run.parameter_type)(In(kMain, from), Parameter(run, from), to - from);
        return;
      case ChunkOp::kRead:
        for (int segment = 0; segment < kSegmentCount; ++segment) {
          Read(segment, run, from, to);
        }
        return;
      case ChunkOp::kWrite:
        for (int segment = 0; segment < kSegmentCount; ++segment) {
          Write(segment, run, from, to);
        }
        return;
    }
  }

  ConvertKernel Convert(int segment, DataType to) const {
    return FindConvertKernel(set_, work_.segment_types[segment], to);
  }

  void Refresh(const RunType& run, uint64_t from, uint64_t to) const {
    if (work_.mains_fresh) {
      FindConvertKernel(set_, run.parameter_type, DataType::kFloat32)(Parameter(run, from),
                                                                      Out(kMain, from), to - from);
    } else {
      FindRefreshKernel(set_, run.parameter_type)(Parameter(run, from), In(kMain, from),
                                                  Out(kMain, from), to - from);
    }
  }

  void Read(int segment, const RunType& run, uint64_t from, uint64_t to) const {
    std::byte* buffer = Buffer(segment, run, from);
    if (buffer == nullptr) {
      return;
    }
    if (segment != kMain && work_.moments_zero) {
      std::memset(buffer, 0, (to - from) * SizeBytes(run.buffer_types[segment]));
    } else {
      Convert(segment, run.buffer_types[segment])(In(segment, from), buffer, to - from);
    }
  }

  void Write(int segment, const RunType& run, uint64_t from, uint64_t to) const {
    const std::byte* buffer = Buffer(segment, run, from);
    if (buffer == nullptr) {
      CopySegment(segment, from, to);
    } else {
      FindConvertKernel(set_, run.buffer_types[segment], work_.segment_types[segment])(
          buffer, Out(segment, from), to - from);
    }
  }

  static std::byte* Buffer(int segment, const RunType& run, uint64_t element) {
    auto* buffer = static_cast<std::byte*>(run.buffers[segment]);
    return buffer == nullptr
               ? nullptr
               : buffer + (element - run.first) * SizeBytes(run.buffer_types[segment]);
  }

  static std::byte* Parameter(const RunType& run, uint64_t element) {
    return static_cast<std::byte*>(run.parameter) +
           (element - run.first) * SizeBytes(run.parameter_type);
  }

  void Adam(const RunType& run, uint64_t from, uint64_t to) {
    AdamArrays arrays;
    arrays.main_in = In(kMain, from);
    if (!work_.moments_zero) {
      arrays.exp_avg_in = In(kExpAvg, from);
      arrays.exp_avg_sq_in = In(kExpAvgSq, from);
    }
    arrays.main_out = Out(kMain, from);
    arrays.exp_avg_out = Out(kExpAvg, from);
    arrays.exp_avg_sq_out = Out(kExpAvgSq, from);
    arrays.gradient = static_cast<const std::byte*>(run.gradient) +
                      (from - run.first) * SizeBytes(run.gradient_type);
    arrays.parameter = Parameter(run, from);
    arrays.count = to - from;
    const AdamTypes types{work_.segment_types[kExpAvg], work_.segment_types[kExpAvgSq],
                          run.gradient_type, run.parameter_type};
    FindAdamKernel(set_, types)(ConstantsOf(run), arrays);
  }

  // Neighbouring tensors share hyperparameters and t as a rule, and the powers are slow.
  const AdamConstants& ConstantsOf(const RunType& run) {
    if (run.t != constants_t_ || run.hyperparameters != constants_hyperparameters_) {
      constants_ =
          MakeAdamConstants(work_.hyperparameters[run.hyperparameters], run.t, work_.profile);
      constants_t_ = run.t;
      constants_hyperparameters_ = run.hyperparameters;
    }
    return constants_;
  }

  const ChunkWork& work_;
  const InstructionSet set_;
  AdamConstants constants_;
  uint64_t constants_t_ = 0;  // no step has it
  uint32_t constants_hyperparameters_ = 0;
};

}  // namespace

absl::Status CheckWork(const ChunkWork& work) {
  if (work.profile != Profile::kTorchCpu && work.profile != Profile::kTorchCpuIeee) {
    return absl::InvalidArgumentError(
        "the host device computes the profiles torch-cpu and torch-cpu-ieee");
  }
  MOMENT_RETURN_IF_ERROR(CheckPlaces(work));
  return CheckChunk(work);
}

void RunPiece(const ChunkWork& work, InstructionSet set, uint64_t begin, uint64_t end) {
  Piece(work, set).Run(begin, end);
}

}  // namespace moment::device
