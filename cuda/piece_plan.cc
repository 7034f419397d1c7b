#include "cuda/piece_plan.h"

#include <algorithm>
#include <new>

#include "cuda/buffers.h"
#include "cuda/scalar_table.h"
#include "daemon/base/memory.h"

namespace moment::cuda {
namespace {

using base::RoundUp;
using device::ChunkOp;
using device::ChunkWork;
using device::Place;
using device::Run;

constexpr uint64_t kAreaAlignment = 256;
constexpr uint64_t kTableAlignment = 16;
constexpr uint64_t kSlotAlignment = 4096;
// Bytes of an element in the smallest types, segments alone.
constexpr uint64_t kMinElementBytes = 8;

// The part of a run within a piece.
struct Span {
  uint64_t first = 0;  // element of the piece
  uint64_t end = 0;
  uint64_t from_run = 0;  // elements of the run before it
};

class Planner {
 public:
  Planner(const ChunkWork& work, const Piece& piece, const RegisteredRanges& registered,
          uint64_t slot_address, std::byte* tables, PiecePlan& plan)
      : work_(work),
        piece_(piece),
        registered_(registered),
        slot_address_(slot_address),
        tables_(tables),
        plan_(plan) {}

  void Plan(uint64_t position) {
    plan_.in.clear();
    plan_.cleared.clear();
    plan_.out.clear();
    for (int segment = 0; segment < device::kSegmentCount; ++segment) {
      position = PlanSegment(segment, position);
    }
    CountTables();
    WriteTables();
    if (work_.op == ChunkOp::kAdam) {
      position = StageGradients(position);
    }
    plan_.slot_bytes = StageBuffers(position);
  }

 private:
  std::span<const Run> Runs() const {
    return work_.runs.subspan(piece_.first_run, piece_.run_count);
  }
  static bool Computes(const Run& run) { return run.participates && run.count > 0; }

  Span SpanOf(const Run& run) const {
    const uint64_t from = std::max(run.first, piece_.first);
    const uint64_t to = std::min(run.first + run.count, piece_.first + piece_.count);
    return {from - piece_.first, to - piece_.first, from - run.first};
  }

  static uint32_t TilesOf(const Span& span) {
    constexpr uint64_t kTileGroups = kTileElements / kGroupElements;
    const uint64_t first_group = span.first / kGroupElements;
    const uint64_t groups = (span.end + kGroupElements - 1) / kGroupElements - first_group;
    return static_cast<uint32_t>((groups + kTileGroups - 1) / kTileGroups);
  }

  // Neighbouring tensors share hyperparameters and t as a rule.
  bool NeedsScalars(const Run& run, const Run* previous) const {
    return work_.op == ChunkOp::kAdam && (previous == nullptr || run.t != previous->t ||
                                          run.hyperparameters != previous->hyperparameters);
  }

  bool Uses(int segment) const {
    for (const Run& run : Runs()) {
      bool uses = false;
      ForEachBuffer(work_, run, [&](const Buffer& buffer) { uses |= buffer.segment == segment; });
      if (uses) {
        return true;
      }
    }
    return false;
  }

  // A segment stays where it is if nobody reads it, or if it is in place already and nobody writes.
  bool Leaves(int segment) const {
    if (work_.op == ChunkOp::kAdam || Uses(segment)) {
      return false;
    }
    const bool clears = segment != device::kMain && work_.moments_zero;
    return device::OnlyReads(work_.op) ||
           (!clears && work_.in.data[segment] == work_.out.data[segment]);
  }

  uint64_t PlanSegment(int segment, uint64_t position) {
    const uint64_t size = device::SizeBytes(work_.segment_types[segment]);
    const uint64_t bytes = piece_.count * size;
    plan_.segment_offsets[segment] = position;
    if (Leaves(segment)) {
      return position;
    }
    if (segment != device::kMain && work_.moments_zero) {
      plan_.cleared.push_back({position, bytes});
    } else {
      plan_.in.push_back({work_.in.data[segment] + piece_.first * size, position, bytes});
    }
    if (!device::OnlyReads(work_.op)) {
      plan_.out.push_back({work_.out.data[segment] + piece_.first * size, position, bytes});
    }
    return RoundUp(position + bytes, kAreaAlignment);
  }

  void CountTables() {
    plan_.run_count = plan_.tile_count = plan_.scalar_count = 0;
    const Run* previous = nullptr;
    for (const Run& run : Runs()) {
      if (!Computes(run)) {
        continue;
      }
      plan_.scalar_count += NeedsScalars(run, previous) ? 1 : 0;
      ForEachBuffer(work_, run, [&](const Buffer&) {
        plan_.tile_count += TilesOf(SpanOf(run));
        ++plan_.run_count;
      });
      previous = &run;
    }
    plan_.runs_offset = RoundUp(plan_.scalar_count * ScalarBytes(work_.profile), kTableAlignment);
    plan_.tiles_offset =
        RoundUp(plan_.runs_offset + plan_.run_count * sizeof(KernelRun), kTableAlignment);
    plan_.table_bytes = plan_.tiles_offset + plan_.tile_count * sizeof(KernelTile);
  }

  KernelRun& TableRun(uint32_t index) const {
    return reinterpret_cast<KernelRun*>(tables_ + plan_.runs_offset)[index];
  }

  // All but the origins.
  void WriteTables() {
    std::byte* scalars = tables_;
    std::byte* tiles = tables_ + plan_.tiles_offset;
    uint32_t index = 0;
    uint32_t scalar_count = 0;
    const Run* previous = nullptr;
    for (const Run& run : Runs()) {
      if (!Computes(run)) {
        continue;
      }
      if (NeedsScalars(run, previous)) {
        WriteScalars(work_.profile, work_.hyperparameters[run.hyperparameters], run.t, scalars);
        scalars += ScalarBytes(work_.profile);
        ++scalar_count;
      }
      ForEachBuffer(work_, run, [&](const Buffer& buffer) {
        KernelRun entry = EntryOf(run, buffer);
        entry.scalars = scalar_count == 0 ? 0 : scalar_count - 1;
        new (&TableRun(index)) KernelRun(entry);
        for (uint32_t tile = 0; tile < TilesOf(SpanOf(run)); ++tile) {
          new (tiles) KernelTile{index, tile};
          tiles += sizeof(KernelTile);
        }
        ++index;
      });
      previous = &run;
    }
  }

  KernelRun EntryOf(const Run& run, const Buffer& buffer) const {
    const Span span = SpanOf(run);
    KernelRun entry;
    entry.first = span.first;
    entry.end = span.end;
    entry.gradient_type = run.gradient_type;
    entry.buffer_type = buffer.type;
    entry.segment = static_cast<uint8_t>(buffer.segment);
    entry.segment_type = work_.segment_types[buffer.segment];
    entry.keeps_rounded = work_.op == ChunkOp::kRefresh && !work_.mains_fresh;
    return entry;
  }

  // Returns the slot's position behind them.
  uint64_t StageGradients(uint64_t position) {
    HostStager stager(plan_.in, position, HostStager::kMaxGapBytes, registered_);
    uint32_t index = 0;
    for (const Run& run : Runs()) {
      if (Computes(run)) {
        // Copies have one type of pointer; these only read.
        auto* const data = static_cast<std::byte*>(const_cast<void*>(run.gradient));
        TableRun(index++).gradient_origin =
            Origin(stager, data, run.gradient_type, run.gradient_place, SpanOf(run));
      }
    }
    return stager.position();
  }

  uint64_t StageBuffers(uint64_t position) {
    const bool reads = work_.op == ChunkOp::kRefresh || work_.op == ChunkOp::kWrite;
    HostStager stager(reads ? plan_.in : plan_.out, position, reads ? HostStager::kMaxGapBytes : 0,
                      registered_);
    uint32_t index = 0;
    for (const Run& run : Runs()) {
      ForEachBuffer(work_, run, [&](const Buffer& buffer) {
        TableRun(index++).buffer_origin = Origin(stager, static_cast<std::byte*>(buffer.data),
                                                 buffer.type, buffer.place, SpanOf(run));
      });
    }
    return stager.position();
  }

  // The address on the GPU of the piece's element 0, if the run reached there.
  uint64_t Origin(HostStager& stager, std::byte* run_data, device::DataType type, Place place,
                  const Span& span) const {
    const uint64_t size = device::SizeBytes(type);
    std::byte* const data = run_data + span.from_run * size;
    uint64_t address = reinterpret_cast<uint64_t>(data);
    if (place == Place::kHost) {
      address = slot_address_ + stager.Place(data, (span.end - span.first) * size, size,
                                             span.first * size % HostStager::kAlignment);
    }
    return address - span.first * size;
  }

  const ChunkWork& work_;
  const Piece& piece_;
  const RegisteredRanges& registered_;
  const uint64_t slot_address_;
  std::byte* const tables_;
  PiecePlan& plan_;
};

}  // namespace

SlotLayout MakeSlotLayout(uint64_t slot_bytes, uint32_t max_runs) {
  // A run's first and last tile can be short.
  const uint64_t max_tiles = slot_bytes / kMinElementBytes / kTileElements + 2 * max_runs;
  SlotLayout layout;
  layout.limits.max_runs = max_runs;
  layout.table_bytes = RoundUp(max_runs * (kMaxScalarBytes + sizeof(KernelRun)) +
                                   max_tiles * sizeof(KernelTile) + 2 * kTableAlignment,
                               kSlotAlignment);
  layout.limits.data_bytes = slot_bytes - std::min(slot_bytes, layout.table_bytes);
  return layout;
}

void PlanPiece(const ChunkWork& work, const Piece& piece, const SlotLayout& layout,
               const RegisteredRanges& registered, uint64_t slot_address, std::byte* tables,
               PiecePlan& plan) {
  Planner(work, piece, registered, slot_address, tables, plan).Plan(layout.table_bytes);
}

}  // namespace moment::cuda
