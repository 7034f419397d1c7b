#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/lanes.h"
#include "daemon/pipeline/part_plan.h"
#include "daemon/pipeline/tensor_digests.h"
#include "daemon/pipeline/version.h"
#include "daemon/store/store.h"

namespace moment::pipeline {

// One way through the chunks of a store: a step, a refresh, a materialisation, a read, a write or
// a digest (which is a read without buffers).
struct PassSpec {
  PassWork work;
  // How the chunks are cut; absent: as the attachment has it.
  std::optional<PartPlan> parts;
  // Digests the chunks that take part into this.
  TensorDigests* digests = nullptr;
  // Refresh of the whole store: nothing of the applied state is read, all moments are zero.
  bool whole = false;
  // What follows the applied state; its id and images come from the change. Unused by a pass that
  // changes nothing.
  store::State next;
  // The result is committed at once, so every frame is written: the caller waits for it.
  bool commits = false;
  std::optional<uint64_t> drop_sequence;  // Store::Drop when it arrives
  // It is answered when every due commit up to this sequence is durable.
  std::optional<uint64_t> answer_after;
  std::function<void(uint32_t bucket)> bucket_final;

  bool changes() const { return !device::OnlyReads(work.op); }
};

// What a pass does to each chunk, derived from its spec, the plan and the state it starts from.
class Pass {
 public:
  // `plan` outlives it.
  Pass(const ChunkPlan& plan, PassSpec spec, std::shared_ptr<const store::State> base);

  PassSpec& spec() { return spec_; }
  const PassSpec& spec() const { return spec_; }
  const std::shared_ptr<const store::State>& base() const { return base_; }

  // The chunks it visits, in order.
  const std::vector<uint32_t>& order() const { return order_; }
  // Some elements of the chunk pass through the lanes; otherwise it is copied along (zeroed where
  // the work says so), or digested.
  bool UsesLanes(uint32_t chunk) const { return uses_lanes_[chunk]; }
  // All its bytes are new: nothing is read.
  bool IsFresh(uint32_t chunk) const { return fresh_[chunk]; }
  // What of the chunk's file it needs; nullopt: all of it.
  std::optional<ChunkExtent> Extent(uint32_t chunk) const;
  // By bucket; buckets that were added to the layout are left out unless the pass writes them.
  std::vector<bool> rewritten() const;
  std::vector<bool> moments_zero() const;
  // The moments of the bucket count as zero in the state that follows.
  bool MomentsZero(uint32_t bucket) const { return moments_zero_[bucket]; }

  // Calls bucket_final for the buckets it does not visit.
  void ReportUntouchedBuckets() const;
  // One chunk more whose parameters the trainer has.
  void ReportChunkSent(const Chunk& chunk);

 private:
  void VisitChunks();
  void Order();
  void FindZeroMoments();
  bool Needs(const ChunkRun& run, int segment) const;
  bool Moves(uint32_t tensor) const;
  bool HasBase(uint32_t bucket) const;
  size_t BucketsAfter() const;  // of the state that follows

  const ChunkPlan& plan_;
  PassSpec spec_;
  std::shared_ptr<const store::State> base_;
  std::vector<uint32_t> order_;
  std::vector<bool> takes_part_;          // by chunk: some element does
  std::vector<bool> uses_lanes_;          // by chunk
  std::vector<bool> fresh_;               // by chunk
  std::vector<bool> rewritten_;           // by bucket
  std::vector<bool> moments_zero_;        // by bucket
  std::vector<uint32_t> chunks_to_send_;  // by bucket
};

}  // namespace moment::pipeline
