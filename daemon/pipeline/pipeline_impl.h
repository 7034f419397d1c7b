#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/pipeline/chunk_io.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/committer.h"
#include "daemon/pipeline/event_loop.h"
#include "daemon/pipeline/frame_table.h"
#include "daemon/pipeline/lanes.h"
#include "daemon/pipeline/node.h"
#include "daemon/pipeline/state_pipeline.h"
#include "daemon/pipeline/step_runner.h"
#include "daemon/pipeline/write_back.h"

namespace moment::pipeline {

// The calls of StatePipeline, on their callers' threads, over the parts that live on the loop.
class PipelineImpl : public StatePipeline {
 public:
  PipelineImpl(Node& node, device::Device& device, std::unique_ptr<store::Store> store,
               const PipelineOptions& options, IoScheduler& scheduler);
  ~PipelineImpl() override;

  // Grants the frames and starts to read ahead.
  absl::Status Init(FramePool& pool);

  const store::Store& store() const override { return *store_; }
  std::optional<Position> applied() const override;
  std::string applied_blob() const override;
  std::vector<uint64_t> applied_t() const override;

  void Attach(Bindings bindings) override;
  void Detach() override;

  absl::StatusOr<v1::StepStatistics> Step(const StepParameters& parameters) override;
  absl::Status Skip(uint64_t sequence, const std::string& step_id,
                    const std::string& blob) override;
  absl::StatusOr<v1::CommitInfo> Flush(uint64_t sequence) override;
  absl::StatusOr<v1::CommitInfo> Refresh(const RefreshParameters& parameters) override;
  absl::Status Materialize(const std::vector<bool>& tensors) override;
  absl::StatusOr<v1::CommitInfo> Rollback(uint64_t sequence) override;
  absl::Status Read(const ReadParameters& parameters) override;
  absl::StatusOr<v1::CommitInfo> Write(const WriteParameters& parameters) override;
  absl::StatusOr<std::vector<TensorDigest>> Digest(const std::vector<bool>& tensors) override;
  absl::StatusOr<std::shared_ptr<const store::PinnedCommit>> Pin(
      const store::PinParameters& parameters) override;
  absl::Status Unpin(const std::string& id) override;
  void Abort(absl::Status status) override;
  absl::Status Drain() override;
  PipelineStatus Status() const override;

 private:
  // A changing call under way: what Abort means, and what Status shows.
  class CallScope;
  // A caller waiting for the loop; fired once, by what it waits for or by Abort.
  struct Wait;

  bool IsDue(uint64_t sequence) const {
    return options_.commit_every > 0 && sequence % options_.commit_every == 0;
  }

  absl::StatusOr<v1::StepStatistics> RunPass(PassSpec spec);
  // Everything of the trainer's that the pass touches lies in memory of the device: no slot limits
  // how much goes through it at a time.
  bool NeedsNoSlots(const PassSpec& spec) const;
  absl::Status WaitOnLoop(bool abortable,
                          const std::function<void(const std::shared_ptr<Wait>&)>& arm);
  // The applied version is durable; with `want`, it is made so.
  absl::Status WaitDurable(bool want, bool due, bool abortable);
  // No read, write or commit is under way.
  absl::Status WaitQuiet();
  absl::Status CommitApplied(bool due, bool abortable);
  absl::StatusOr<v1::CommitInfo> NewestCommit() const;
  absl::Status CheckReady(bool needs_memory, bool needs_state);
  absl::StatusOr<PassSpec> StepSpec(const StepParameters& parameters) const;
  absl::StatusOr<PassSpec> WholeRefreshSpec(const RefreshParameters& parameters) const;
  absl::StatusOr<PassSpec> TensorRefreshSpec(const RefreshParameters& parameters) const;
  absl::StatusOr<PassSpec> WriteSpec(const WriteParameters& parameters) const;
  // Adds the tensors and their cut into parts to the spec of a Read or Write.
  absl::Status AddAccess(const std::vector<TensorAccess>& tensors, PassSpec& spec) const;
  absl::StatusOr<PartPlan> PlanParts(const std::vector<TensorAccess>& tensors);
  // A change between two steps, from a committed state to the commit of the next.
  absl::StatusOr<v1::CommitInfo> RunChange(PassSpec spec);
  void ReplaceState(std::shared_ptr<const store::State> state);
  void DropAllFrames();
  // Lets the store remove what nothing needs any more, behind the calls.
  void SweepBehind();

  std::shared_ptr<const store::State> published() const;
  void Publish();
  bool Quiet() const;
  void AfterBatch();

  const PipelineOptions options_;
  device::Device& device_;
  std::unique_ptr<store::Store> store_;
  Node& node_;
  IoScheduler& scheduler_;
  const ChunkPlan plan_;

  std::unique_ptr<Committer> sweeper_;
  std::atomic<bool> sweep_posted_{false};

  // The loop's.
  std::unique_ptr<Committer> committer_;
  std::unique_ptr<EventLoop> loop_;
  StepRunner runner_;
  std::unique_ptr<FrameTable> frames_;
  std::unique_ptr<ChunkIo> io_;
  std::unique_ptr<Lanes> lanes_;
  std::unique_ptr<Digester> digester_;
  std::unique_ptr<WriteBack> write_back_;
  std::unique_ptr<Change> change_;
  std::unique_ptr<Prefetcher> prefetcher_;
  absl::Status attach_status_;
  // Of the attachment: whose parameters lie in memory of the device (by tensor, empty ones too),
  // and chunks in one part each. Written by Attach, which runs beside no other call.
  std::vector<bool> on_device_;
  PartPlan whole_chunks_;
  std::shared_ptr<Wait> quiet_wait_;
  std::shared_ptr<Wait> abortable_wait_;
  uint64_t aborted_call_ = 0;
  absl::Status abort_status_;

  std::atomic<uint64_t> current_call_{0};  // 0: none
  std::atomic<uint64_t> last_call_{0};
  std::atomic<uint64_t> committed_sequence_{0};
  std::atomic<uint64_t> resident_bytes_{0};

  mutable absl::Mutex mutex_;
  std::shared_ptr<const store::State> published_ ABSL_GUARDED_BY(mutex_);
  std::string activity_ ABSL_GUARDED_BY(mutex_) = "idle";
  std::string failure_ ABSL_GUARDED_BY(mutex_);
  uint64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;
  v1::StepStatistics last_step_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moment::pipeline
