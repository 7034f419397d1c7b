#include "daemon/pipeline/pass.h"

#include <algorithm>
#include <utility>

namespace moment::pipeline {

Pass::Pass(const ChunkPlan& plan, PassSpec spec, std::shared_ptr<const store::State> base)
    : plan_(plan),
      spec_(std::move(spec)),
      base_(std::move(base)),
      takes_part_(plan.chunks().size()),
      uses_lanes_(plan.chunks().size()),
      fresh_(plan.chunks().size()),
      rewritten_(plan.buckets().size()),
      moments_zero_(plan.buckets().size()),
      chunks_to_send_(plan.buckets().size()) {
  spec_.work.t = spec_.next.t;
  VisitChunks();
  Order();
  FindZeroMoments();
}

bool Pass::HasBase(uint32_t bucket) const {
  return !spec_.whole && base_ != nullptr && bucket < base_->images.size();
}

// Some of the tensor's elements pass through the lanes.
bool Pass::Moves(uint32_t tensor) const {
  const PassWork& work = spec_.work;
  if (work.participates[tensor] == 0 || spec_.digests != nullptr) {
    return false;
  }
  return work.access.empty() || work.access[tensor].Any(Access::kBuffer);
}

void Pass::VisitChunks() {
  const auto& chunks = plan_.chunks();
  const bool overwrites = spec_.work.op == device::ChunkOp::kWrite;
  for (uint32_t c = 0; c < chunks.size(); ++c) {
    bool all_new = overwrites;
    for (const ChunkRun& run : plan_.runs(chunks[c])) {
      const bool takes_part = spec_.work.participates[run.tensor] != 0;
      takes_part_[c] = takes_part_[c] || takes_part;
      uses_lanes_[c] = uses_lanes_[c] || Moves(run.tensor);
      all_new = all_new && takes_part && spec_.work.access[run.tensor].all();
    }
    fresh_[c] = !HasBase(chunks[c].bucket) || all_new;
  }
}

void Pass::Order() {
  const auto& chunks = plan_.chunks();
  for (uint32_t c = 0; c < chunks.size(); ++c) {
    if (takes_part_[c]) {
      rewritten_[chunks[c].bucket] = true;
    }
  }
  order_.reserve(chunks.size());
  for (uint32_t c = 0; c < chunks.size(); ++c) {
    if (spec_.changes() ? rewritten_[chunks[c].bucket] : takes_part_[c]) {
      order_.push_back(c);
      ++chunks_to_send_[chunks[c].bucket];
    }
  }
}

void Pass::FindZeroMoments() {
  if (spec_.work.op == device::ChunkOp::kAdam) {
    return;
  }
  const bool writes = spec_.work.op == device::ChunkOp::kWrite;
  for (uint32_t b = 0; b < moments_zero_.size(); ++b) {
    const bool zero_before = !HasBase(b) || base_->images[b]->moments_zero();
    bool all_zeroed = writes;
    bool any_given = false;
    const BucketChunks& of = plan_.buckets()[b];
    for (uint32_t c = of.first; writes && c < of.first + of.count; ++c) {
      for (const ChunkRun& run : plan_.runs(plan_.chunks()[c])) {
        for (const int s : {device::kExpAvg, device::kExpAvgSq}) {
          const Access access = spec_.work.access[run.tensor].access[s];
          all_zeroed = all_zeroed && access == Access::kZeros;
          any_given = any_given || access == Access::kBuffer;
        }
      }
    }
    moments_zero_[b] = (zero_before && !any_given) || all_zeroed;
  }
}

// What is there of this segment of the run matters.
bool Pass::Needs(const ChunkRun& run, int segment) const {
  const PassWork& work = spec_.work;
  const bool takes_part = work.participates[run.tensor] != 0;
  switch (work.op) {
    case device::ChunkOp::kAdam:
    case device::ChunkOp::kRefresh:
      return true;
    case device::ChunkOp::kMaterialize:
      return takes_part && segment == device::kMain;
    case device::ChunkOp::kRead:
      return takes_part &&
             (work.access.empty() || work.access[run.tensor].access[segment] == Access::kBuffer);
    case device::ChunkOp::kWrite:
      return !takes_part || work.access[run.tensor].access[segment] == Access::kNone;
  }
  return true;
}

std::optional<ChunkExtent> Pass::Extent(uint32_t chunk) const {
  if (spec_.work.op == device::ChunkOp::kAdam) {
    return std::nullopt;
  }
  const Chunk& of = plan_.chunks()[chunk];
  const auto runs = plan_.runs(of);
  ChunkExtent extent;
  bool whole = true;
  for (int s = 0; s < kSegmentCount; ++s) {
    const auto needs = [&](const ChunkRun& run) { return Needs(run, s); };
    const auto first = std::find_if(runs.begin(), runs.end(), needs);
    const auto last = std::find_if(runs.rbegin(), runs.rend(), needs);
    if (first != runs.end()) {
      const uint64_t size = device::SizeBytes(plan_.types(of)[s]);
      const uint64_t end_bytes = (last->chunk_first + last->count) * size;
      extent.units[s].first = first->chunk_first * size / store::kChecksumUnitBytes;
      extent.units[s].count =
          (end_bytes + store::kChecksumUnitBytes - 1) / store::kChecksumUnitBytes -
          extent.units[s].first;
    }
    whole = whole && extent.units[s].count == of.segments[s].units;
  }
  return whole ? std::nullopt : std::make_optional(extent);
}

size_t Pass::BucketsAfter() const {
  const size_t before = base_ == nullptr || spec_.whole ? 0 : base_->images.size();
  for (size_t b = before; b < rewritten_.size(); ++b) {
    if (spec_.whole || base_ == nullptr || rewritten_[b]) {
      return rewritten_.size();
    }
  }
  return before;
}

std::vector<bool> Pass::rewritten() const {
  std::vector<bool> rewritten = rewritten_;
  rewritten.resize(BucketsAfter());
  return rewritten;
}

std::vector<bool> Pass::moments_zero() const {
  std::vector<bool> zero = moments_zero_;
  zero.resize(BucketsAfter());
  return zero;
}

void Pass::ReportUntouchedBuckets() const {
  for (uint32_t b = 0; spec_.bucket_final && b < chunks_to_send_.size(); ++b) {
    if (chunks_to_send_[b] == 0) {
      spec_.bucket_final(b);
    }
  }
}

void Pass::ReportChunkSent(const Chunk& chunk) {
  if (--chunks_to_send_[chunk.bucket] == 0 && spec_.bucket_final) {
    spec_.bucket_final(chunk.bucket);
  }
}

}  // namespace moment::pipeline
