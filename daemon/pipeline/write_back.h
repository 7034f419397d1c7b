#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "daemon/pipeline/chunk_io.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/committer.h"
#include "daemon/pipeline/event_loop.h"
#include "daemon/pipeline/frame_table.h"
#include "daemon/pipeline/version.h"

namespace moment::pipeline {

// The applied state, and the way of it and its predecessors to the disk: frames into files,
// complete files into commits, in the order of their ids. Belongs to the loop's thread.
class WriteBack {
 public:
  WriteBack(const ChunkPlan& plan, store::Store& store, FrameTable& frames, ChunkIo& io,
            Committer& committer, EventLoop& loop);

  const std::shared_ptr<Version>& applied() const { return applied_; }
  // Null: an empty store. The versions before it are then those that are to be committed; what the
  // others alone needed is given up by whoever replaced their frames.
  void SetApplied(std::shared_ptr<Version> version);

  // Hands a dirty frame with a target to the scheduler; returns the bytes.
  uint64_t Write(Frame* frame, IoClass io_class);
  // The end of a write, before the frame is used for anything else. Returns false if the frame is
  // gone (an orphan's).
  bool OnWritten(Frame* frame, const absl::Status& status);
  // The write of the frame will not be needed: its frame and its file's lease go when it ends.
  void Orphan(Frame* frame);
  // Writes under way that no version needs; the files they go to are not free before they end.
  uint32_t orphan_writes() const { return orphan_writes_; }
  // Makes the oldest write of a frame class 1. False if nothing is being written.
  bool ExpediteOldest();

  // The applied version is to be committed, `due` or as it is. Its dirty frames are written.
  void Want(bool due, IoClass io_class);
  // Runs once the version is durable, or with the failure. On the loop.
  void WhenDurable(std::shared_ptr<Version> version, std::function<void(absl::Status)> done);
  // The last due version up to this sequence that is not durable yet; null if there is none.
  std::shared_ptr<Version> LastDue(uint64_t sequence) const;
  // No commit is under way or waiting.
  bool idle() const { return pending_.empty(); }
  uint64_t committed_sequence() const { return committed_sequence_; }

  // Why the store takes no more changes.
  const absl::Status& failure() const { return failure_; }
  void Latch(const absl::Status& failure);

 private:
  struct Waiter {
    std::shared_ptr<Version> version;
    std::function<void(absl::Status)> done;
  };

  void CommitNext();
  void OnCommitted(std::shared_ptr<Version> version, const absl::Status& status);
  void NotifyWaiters();

  const ChunkPlan& plan_;
  store::Store& store_;
  FrameTable& frames_;
  ChunkIo& io_;
  Committer& committer_;
  EventLoop& loop_;
  std::shared_ptr<Version> applied_;
  std::deque<std::shared_ptr<Version>> pending_;  // wanted and not durable, in the order of ids
  std::vector<Waiter> waiters_;
  uint32_t orphan_writes_ = 0;
  uint64_t committed_sequence_ = 0;
  absl::Status failure_;
};

}  // namespace moment::pipeline
