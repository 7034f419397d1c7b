#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/frame.h"
#include "daemon/pipeline/frame_pool.h"
#include "daemon/pipeline/residency.h"

namespace moment::pipeline {

// Where a chunk stands in the pass under way.
enum class ChunkPhase : uint8_t {
  kOutside,  // no pass, or one that leaves it alone
  kWaiting,  // not begun
  kStarted,  // its parts are being handed out and computed
  kDone,     // its result is complete: in `next`, or (where that is null) in its file
};

// Where the bytes of a chunk are. A null `base` means: in the applied state's file.
struct ChunkSlot {
  Frame* base = nullptr;  // of the applied state
  Frame* next = nullptr;  // of the pass; the same frame as `base` where it works in place
  ChunkPhase phase = ChunkPhase::kOutside;
  uint32_t parts_to_compute = 0;
  uint32_t parts_to_send = 0;
};

// The frames of one store, and which chunk is in which. Belongs to the loop's thread.
class FrameTable {
 public:
  FrameTable(const ChunkPlan& plan, std::unique_ptr<FrameGrant> grant, uint32_t frames_each);
  ~FrameTable();

  ChunkSlot& slot(uint32_t chunk) { return slots_[chunk]; }
  const Residency& residency() const { return residency_; }
  uint64_t resident_bytes() const;

  // After the allowance changed: plans residency anew and gives back free frames.
  void Adjust();
  // Frames are held beyond the allowance: those of chunks that no longer stay should go.
  bool over_allowance() const { return held_ > grant_->allowed(); }

  // A free frame for this chunk; null if there is none, or if the chunk streams and the window is
  // full. The frame's state is the caller's to set.
  Frame* Take(uint32_t chunk);
  void Free(Frame* frame);
  void SetState(Frame* frame, FrameState state);

  // Frames that chunks which do not stay can still take.
  uint32_t streaming_room() const {
    return residency_.window - std::min(residency_.window, streaming_);
  }

  // Frees a clean frame that nobody needs any more, of a chunk that does not stay or of which only
  // a part was read; clears the slot's references to it. `pass_active`: read-ahead for the next
  // step is then not kept.
  void ReleaseIfSpent(Frame* frame, bool pass_active);
  // Frees a clean frame of another chunk, the last first, for a pass that cannot go on otherwise.
  // False if there is none.
  bool EvictFor(uint32_t chunk);

  // Frames handed to the scheduler, oldest first.
  Frame* oldest_write() const { return writing_.head; }
  uint64_t reading() const { return reading_; }

 private:
  struct List {
    Frame* head = nullptr;
    Frame* tail = nullptr;
  };
  static void Append(List& list, Frame* frame);
  static void Remove(List& list, Frame* frame);
  Frame* Grow();
  void GiveBack(Frame* frame);

  const ChunkPlan& plan_;
  std::unique_ptr<FrameGrant> grant_;
  const uint32_t frames_each_;
  Residency residency_;
  std::vector<ChunkSlot> slots_;
  std::deque<Frame> frames_;  // never moved
  List free_;
  List hollow_;  // without memory
  List writing_;
  uint32_t held_ = 0;       // frames with memory
  uint32_t streaming_ = 0;  // of chunks that do not stay
  uint64_t reading_ = 0;
};

}  // namespace moment::pipeline
