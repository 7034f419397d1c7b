#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/status.h"
#include "daemon/pipeline/change.h"
#include "daemon/pipeline/chunk_io.h"
#include "daemon/pipeline/digester.h"
#include "daemon/pipeline/frame_table.h"
#include "daemon/pipeline/lanes.h"
#include "daemon/pipeline/part_plan.h"
#include "daemon/pipeline/pass.h"
#include "daemon/pipeline/prefetcher.h"
#include "daemon/pipeline/wait_clock.h"
#include "daemon/pipeline/write_back.h"

namespace moment::pipeline {

// Runs one pass at a time over the chunks: read -> verify -> through the lanes -> fill -> write,
// the stages of different chunks at the same time, each bounded by frames and lanes. Between
// passes it reads ahead for the next step. Belongs to the loop's thread; Pump is called after each
// batch of events.
class StepRunner : public ChunkIo::Listener, public Lanes::Listener {
 public:
  struct Parts {
    const ChunkPlan* plan = nullptr;
    FrameTable* frames = nullptr;
    ChunkIo* io = nullptr;
    Lanes* lanes = nullptr;
    Digester* digester = nullptr;
    WriteBack* write_back = nullptr;
    Change* change = nullptr;
    Prefetcher* prefetcher = nullptr;
  };
  using Done = std::function<void(absl::Status, const v1::StepStatistics&)>;

  void Connect(const Parts& parts) { parts_ = parts; }
  void SetPartPlan(PartPlan plan) { part_plan_ = std::move(plan); }

  // No pass is under way. `done` runs on the loop. If it fails the applied state is what it was.
  void Start(PassSpec spec, Done done);
  // Ends the pass under way with this status as soon as nothing works on its frames.
  void Fail(const absl::Status& status);
  bool active() const { return pass_ != nullptr; }

  void Pump();
  // The applied state was replaced: frees what is not needed for it and reads ahead anew.
  void RestartPrefetch();
  // Gives up frames that are not allowed any more.
  void AdjustFrames();

  void OnRead(Frame* frame, absl::Status status) override;
  void OnFilled(Frame* frame) override;
  void OnWritten(Frame* frame, absl::Status status) override;
  void OnPartComputed(uint32_t chunk, double device_seconds) override;
  void OnPartSent(uint32_t chunk) override;
  void OnPartFailed(uint32_t chunk, const absl::Status& status) override;

 private:
  // Why the next chunk does not go on.
  enum class Block : uint8_t { kNone, kRead, kFrame, kLane };

  // Setting up and beginning the change.
  void PrepareSlots();
  void MakeRoom();
  std::optional<ChunkExtent> ExtentOf(uint32_t chunk) const;
  void Read(uint32_t chunk, Frame* frame);
  void ReleaseSpent();
  void BeginChange();
  void OnBegun(const absl::Status& status);

  // Moving chunks on.
  bool StartReads();  // false: a chunk lacks a frame
  void StartParts();
  bool BeginChunk(uint32_t chunk);
  void CountRead(Frame* base);
  bool BeginMaterialize(uint32_t chunk);
  Frame* ResultFrame(uint32_t chunk);
  bool HandOut(uint32_t chunk);
  bool HandOutDigest(uint32_t chunk);
  std::span<const Part> PartsOf(uint32_t chunk) const;
  // Something works on frames of the pass.
  bool Working() const {
    return parts_.lanes->busy() > 0 || parts_.digester->busy() || filling_ > 0;
  }
  void ChunkComputed(uint32_t chunk);
  void FillResult(uint32_t chunk);
  void CompleteResult(Frame* frame);
  void WriteResult(Frame* frame);
  void ChunkSent(uint32_t chunk);
  void FindFrame();
  bool SpillOne();
  WaitFor Waiting() const;

  // The end.
  bool Complete() const;
  void Apply();
  void Supersede(Frame* frame);
  void DropResults();
  void FinishPass(const absl::Status& status);

  Parts parts_;
  PartPlan part_plan_;

  std::unique_ptr<Pass> pass_;
  Done done_;
  absl::Status failure_;
  bool dropped_ = false;  // the failed pass's results are gone
  bool begin_posted_ = false;
  size_t next_read_ = 0;  // indices into the pass's order
  size_t next_issue_ = 0;
  size_t next_part_ = 0;
  size_t results_left_ = 0;  // chunks not computed and filled
  size_t sends_left_ = 0;    // chunks whose parameters the trainer does not have
  uint32_t filling_ = 0;
  uint32_t partial_reads_ = 0;     // under way
  uint64_t evicted_bytes_ = 0;     // read ahead for the next step, and given up for this pass
  uint64_t fetched_bytes_ = 0;     // read by this pass itself
  bool keeps_read_ahead_ = false;  // what was read ahead outlives the pass
  Block block_ = Block::kNone;

  WaitClock clock_;
  v1::StepStatistics statistics_;
  uint64_t bytes_read_ = 0;
};

}  // namespace moment::pipeline
