#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/committer.h"
#include "daemon/pipeline/event_loop.h"
#include "daemon/pipeline/pass.h"
#include "daemon/pipeline/version.h"
#include "daemon/store/store.h"

namespace moment::pipeline {

// The store's change that a pass makes: begun on the committer's thread, then the files that the
// results go to, in the end the version that follows the applied one. Belongs to the loop's thread.
class Change {
 public:
  Change(const ChunkPlan& plan, store::Store& store, Committer& committer, EventLoop& loop)
      : plan_(plan), store_(store), committer_(committer), loop_(loop) {}

  // Checks the files it starts from, drops what the arrival of the sequence drops, takes the next
  // id. `begun` runs on the loop; this object outlives it.
  void Begin(const Pass& pass, std::function<void(absl::Status)> begun);
  bool under_way() const { return under_way_; }  // Begin has not answered
  // The files are there.
  bool ready() const { return mutation_ != nullptr; }
  const std::shared_ptr<TargetImage>& target(uint32_t bucket) const { return targets_[bucket]; }

  // The version that follows `applied` (null: none), with this state.
  std::shared_ptr<Version> Finish(store::State next, const Version* applied);
  void Drop();

 private:
  void MakeTargets();

  const ChunkPlan& plan_;
  store::Store& store_;
  Committer& committer_;
  EventLoop& loop_;
  bool under_way_ = false;
  std::unique_ptr<store::Mutation> mutation_;
  Targets targets_;
};

}  // namespace moment::pipeline
