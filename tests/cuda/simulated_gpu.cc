#include "tests/cuda/simulated_gpu.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <utility>

#include "cuda/adam_reference.h"
#include "cuda/scalar_table.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "daemon/device/chunk_check.h"
#include "daemon/device/float_conversion.h"

namespace moment::cuda {
namespace {

using device::ChunkOp;
using device::ChunkWork;
using device::DataType;

template <typename T>
T* At(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// As on a GPU, whose accesses must be aligned.
void CheckAligned(DataType type, uint64_t origin) {
  if (origin % device::SizeBytes(type) != 0) {
    std::cerr << "misaligned access" << std::endl;
    std::abort();
  }
}

float Load(DataType type, uint64_t origin, uint64_t index) {
  CheckAligned(type, origin);
  if (type == DataType::kFloat32) {
    float value;
    std::memcpy(&value, At<const void>(origin + index * 4), 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, At<const void>(origin + index * 2), 2);
  return type == DataType::kBFloat16 ? device::WidenBFloat16(bits) : device::WidenFloat16(bits);
}

void Store(float value, DataType type, uint64_t origin, uint64_t index) {
  CheckAligned(type, origin);
  if (type == DataType::kFloat32) {
    std::memcpy(At<void>(origin + index * 4), &value, 4);
    return;
  }
  const uint16_t bits =
      type == DataType::kBFloat16 ? device::NarrowBFloat16(value) : device::NarrowFloat16(value);
  std::memcpy(At<void>(origin + index * 2), &bits, 2);
}

// Whether `value` rounds to the number of this type that `rounded` is, bit for bit.
bool RoundsTo(float value, DataType type, float rounded) {
  float narrow = value;
  if (type == DataType::kBFloat16) {
    narrow = device::WidenBFloat16(device::NarrowBFloat16(value));
  } else if (type == DataType::kFloat16) {
    narrow = device::WidenFloat16(device::NarrowFloat16(value));
  }
  return std::bit_cast<uint32_t>(narrow) == std::bit_cast<uint32_t>(rounded);
}

}  // namespace

SimulatedGpu::SimulatedGpu(device::Profile profile, uint64_t slot_bytes, uint32_t max_runs)
    : profile_(profile),
      layout_(MakeSlotLayout(slot_bytes, max_runs)),
      tables_(layout_.table_bytes),
      memory_(slot_bytes + 4096) {
  const auto address = reinterpret_cast<uint64_t>(memory_.data());
  slot_ = memory_.data() + (base::RoundUp(address, 4096) - address);
}

absl::Status SimulatedGpu::Check(const ChunkWork& work) const {
  if (work.profile != profile_) {
    return absl::InvalidArgumentError("another profile");
  }
  return device::CheckChunk(work);
}

void SimulatedGpu::Submit(ChunkWork* work) {
  absl::Status status = Check(*work);
  if (status.ok()) {
    PieceCursor cursor(*work, layout_.limits);
    while (status.ok() && !cursor.done()) {
      status = RunPiece(*work, cursor.Next());
      ++pieces_;
    }
  }
  work->seconds = 0;
  work->done(work, std::move(status));
}

absl::Status SimulatedGpu::RunPiece(const ChunkWork& work, const Piece& piece) {
  if (piece.count == 0) {
    return absl::InternalError("an empty piece");
  }
  std::fill(memory_.begin(), memory_.end(), std::byte{0xa5});
  PlanPiece(work, piece, layout_, registered_, reinterpret_cast<uint64_t>(slot_), tables_.data(),
            plan_);
  if (plan_.slot_bytes > layout_.table_bytes + layout_.limits.data_bytes ||
      plan_.table_bytes > layout_.table_bytes) {
    return absl::InternalError("a piece is larger than its slot");
  }
  std::memcpy(slot_, tables_.data(), plan_.table_bytes);
  for (const HostCopy& in : plan_.in) {
    std::memcpy(slot_ + in.slot_offset, in.host, in.length_bytes);
  }
  for (const SlotArea& area : plan_.cleared) {
    std::memset(slot_ + area.offset, 0, area.length_bytes);
  }
  const auto* runs = reinterpret_cast<const KernelRun*>(slot_ + plan_.runs_offset);
  const auto* tiles = reinterpret_cast<const KernelTile*>(slot_ + plan_.tiles_offset);
  for (uint32_t i = 0; i < plan_.tile_count; ++i) {
    RunTile(work, runs[tiles[i].run], tiles[i].index);
  }
  for (const HostCopy& out : plan_.out) {
    std::memcpy(out.host, slot_ + out.slot_offset, out.length_bytes);
  }
  return absl::OkStatus();
}

// The indexes of kernels/group_access.cuh.
void SimulatedGpu::RunTile(const ChunkWork& work, const KernelRun& run, uint32_t index) {
  const uint64_t first =
      run.first / kGroupElements * kGroupElements + uint64_t{index} * kTileElements;
  for (uint64_t element = std::max(first, run.first);
       element < std::min(first + kTileElements, run.end); ++element) {
    RunElement(work, run, element);
  }
}

void SimulatedGpu::RunElement(const ChunkWork& work, const KernelRun& run, uint64_t element) {
  if (work.op == ChunkOp::kAdam) {
    RunAdam(work, run, element);
    return;
  }
  const uint64_t segment = Origin(run.segment);
  if (device::OnlyReads(work.op)) {
    Store(Load(run.segment_type, segment, element), run.buffer_type, run.buffer_origin, element);
    return;
  }
  const float value = Load(run.buffer_type, run.buffer_origin, element);
  if (!run.keeps_rounded ||
      !RoundsTo(Load(run.segment_type, segment, element), run.buffer_type, value)) {
    Store(value, run.segment_type, segment, element);
  }
}

void SimulatedGpu::RunAdam(const ChunkWork& work, const KernelRun& run, uint64_t element) {
  const DataType* types = work.segment_types;
  device::AdamElement state{Load(DataType::kFloat32, Origin(device::kMain), element),
                            Load(types[device::kExpAvg], Origin(device::kExpAvg), element),
                            Load(types[device::kExpAvgSq], Origin(device::kExpAvgSq), element)};
  state = AdamUpdate(profile_, slot_ + run.scalars * ScalarBytes(profile_),
                     Load(run.gradient_type, run.gradient_origin, element), state);
  Store(state.main, DataType::kFloat32, Origin(device::kMain), element);
  Store(state.exp_avg, types[device::kExpAvg], Origin(device::kExpAvg), element);
  Store(state.exp_avg_sq, types[device::kExpAvgSq], Origin(device::kExpAvgSq), element);
  Store(state.main, run.buffer_type, run.buffer_origin, element);
}

uint64_t SimulatedGpu::Origin(int segment) const {
  return reinterpret_cast<uint64_t>(slot_ + plan_.segment_offsets[segment]);
}

}  // namespace moment::cuda
