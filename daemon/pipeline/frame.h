#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "daemon/base/worker_pool.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/event_loop.h"
#include "daemon/pipeline/io_scheduler.h"
#include "daemon/pipeline/tensor_access.h"
#include "daemon/store/store.h"

namespace moment::pipeline {

struct TargetImage;

inline constexpr uint32_t kNoChunk = UINT32_MAX;

// A frame holds one chunk of one file at one id.
//   free       nothing
//   reading    being read and verified
//   clean      its bytes are in its file: the only state in which it may be updated in place
//   computing  the device works on it, or it is filled; its bytes are nowhere else
//   dirty      complete, not in its file
//   writing    its checksums are computed, then it is handed to the scheduler; its bytes must not
//              change before the write is complete
enum class FrameState : uint8_t { kFree, kReading, kClean, kComputing, kDirty, kWriting };
inline constexpr int kFrameStates = 6;

struct Frame;
struct FrameTask : base::WorkerPool::Task {
  Frame* frame = nullptr;
};

// Owned by the frame table and touched by the loop's thread alone, but for what an I/O request or a
// worker's task that runs uses.
struct Frame {
  std::byte* data = nullptr;
  FrameState state = FrameState::kFree;
  uint32_t chunk = kNoChunk;
  // The file the bytes belong to, until they are in it; null for a clean frame, and for a result
  // that is older than its file (the change has not been begun yet).
  std::shared_ptr<TargetImage> target;
  uint32_t users = 0;               // device work and checksums that read it
  bool moments_zero = false;        // the moments count as zero, whatever the bytes are
  bool orphan = false;              // no chunk refers to it: free at the end of its write
  uint64_t unreported_bytes = 0;    // were read for it, and no step has told of them yet
  bool partial = false;             // only what the pass needs was read: it goes with the pass
  std::vector<uint64_t> checksums;  // of its units, segment after segment

  // The read, write or filling under way.
  ChunkExtent extent;
  IoClass io_class = IoClass::kStep;
  bool checksumming = false;  // of a write: nothing is submitted yet
  bool cancelled = false;     // and nothing need be
  IoRequest requests[store::kSegmentCount];
  int request_count = 0;
  std::atomic<int> pending{0};
  absl::Status status;
  store::BucketImage* image = nullptr;
  const Frame* fill_from = nullptr;
  bool fill_zero_moments = false;
  std::span<const TensorAccess> fill_zeros;
  FrameTask task;
  Event event;
  void* io = nullptr;

  Frame* previous = nullptr;  // in the list of the frame table it is in
  Frame* next = nullptr;
};

}  // namespace moment::pipeline
