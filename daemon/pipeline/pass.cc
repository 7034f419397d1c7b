#include "daemon/pipeline/pass.h"

#include <algorithm>
#include <utility>

namespace moment::pipeline {

Pass::Pass(const ChunkPlan& plan, PassSpec spec, std::shared_ptr<const store::State> base)
    : spec_(std::move(spec)),
      base_(std::move(base)),
      takes_part_(plan.chunks().size()),
      rewritten_(plan.buckets().size()),
      chunks_to_send_(plan.buckets().size()) {
  spec_.work.t = spec_.next.t;
  Visit(plan);
}

void Pass::Visit(const ChunkPlan& plan) {
  const auto& chunks = plan.chunks();
  for (uint32_t c = 0; c < chunks.size(); ++c) {
    const auto runs = plan.runs(chunks[c]);
    takes_part_[c] = std::any_of(runs.begin(), runs.end(), [this](const ChunkRun& run) {
      return spec_.work.participates[run.tensor] != 0;
    });
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

bool Pass::IsFresh(const Chunk& chunk) const {
  return spec_.whole || base_ == nullptr || chunk.bucket >= base_->images.size();
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
  std::vector<bool> zero(BucketsAfter());
  if (spec_.work.op == device::ChunkOp::kAdam) {
    return zero;
  }
  for (size_t b = 0; b < zero.size(); ++b) {
    zero[b] = spec_.whole || base_ == nullptr || b >= base_->images.size() ||
              base_->images[b]->moments_zero();
  }
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
