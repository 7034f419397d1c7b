#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/lanes.h"
#include "daemon/pipeline/version.h"
#include "daemon/store/store.h"

namespace moment::pipeline {

// One way through the chunks of a store: a step, a refresh or a materialisation.
struct PassSpec {
  PassWork work;
  // Refresh of the whole store: nothing of the applied state is read, all moments are zero.
  bool whole = false;
  // What follows the applied state; its id and images come from the change. Unused by kMaterialize.
  store::State next;
  // The result is committed at once, so every frame is written: the caller waits for it.
  bool commits = false;
  std::optional<uint64_t> drop_sequence;  // Store::Drop when it arrives
  // It is answered when every due commit up to this sequence is durable.
  std::optional<uint64_t> answer_after;
  std::function<void(uint32_t bucket)> bucket_final;

  bool changes() const { return work.op != device::ChunkOp::kMaterialize; }
};

// What a pass does to each chunk, derived from its spec, the plan and the state it starts from.
class Pass {
 public:
  Pass(const ChunkPlan& plan, PassSpec spec, std::shared_ptr<const store::State> base);

  PassSpec& spec() { return spec_; }
  const PassSpec& spec() const { return spec_; }
  const std::shared_ptr<const store::State>& base() const { return base_; }

  // The chunks it visits, in order.
  const std::vector<uint32_t>& order() const { return order_; }
  // Some element of the chunk takes part; the others are copied along.
  bool TakesPart(uint32_t chunk) const { return takes_part_[chunk]; }
  // Its bytes come from the trainer alone: nothing is read.
  bool IsFresh(const Chunk& chunk) const;
  // By bucket; buckets that were added to the layout are left out unless the pass writes them.
  std::vector<bool> rewritten() const;
  std::vector<bool> moments_zero() const;

  // Calls bucket_final for the buckets it does not visit.
  void ReportUntouchedBuckets() const;
  // One chunk more whose parameters the trainer has.
  void ReportChunkSent(const Chunk& chunk);

 private:
  void Visit(const ChunkPlan& plan);
  size_t BucketsAfter() const;  // of the state that follows

  PassSpec spec_;
  std::shared_ptr<const store::State> base_;
  std::vector<uint32_t> order_;
  std::vector<bool> takes_part_;
  std::vector<bool> rewritten_;           // by bucket
  std::vector<uint32_t> chunks_to_send_;  // by bucket
};

}  // namespace moment::pipeline
