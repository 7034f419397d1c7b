#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/memory.h"
#include "daemon/device/device.h"
#include "daemon/device/memory_registration.h"
#include "daemon/pipeline/frame.h"
#include "moment/v1/admin.pb.h"

namespace moment::pipeline {

class FramePool;

struct FrameDemand {
  uint64_t frame_bytes = 0;
  uint32_t minimum = 0;  // without these the store cannot step
  uint32_t wanted = 0;   // more would be of no use to it
  // The number of frames the store may hold has changed. Called under the pool's lock, from any
  // thread: it may only post.
  std::function<void()> allowance_changed;
};

// The frames of one store. Its methods come from the store's loop; `allowed` from any thread.
class FrameGrant {
 public:
  ~FrameGrant();  // every frame was given back
  FrameGrant(const FrameGrant&) = delete;
  FrameGrant& operator=(const FrameGrant&) = delete;

  // Frames the store may hold; whoever holds more gives back as soon as it can.
  uint32_t allowed() const { return allowed_.load(std::memory_order_relaxed); }
  // Null when `allowed` are held, or the pool has no room for one more.
  std::byte* Take();
  void Give(std::byte* frame);

  // For status: a frame of this grant went from one state to another.
  void Count(FrameState from, FrameState to);

 private:
  friend class FramePool;
  FrameGrant(FramePool& pool, FrameDemand demand) : pool_(pool), demand_(std::move(demand)) {}

  FramePool& pool_;
  const FrameDemand demand_;
  std::atomic<uint32_t> allowed_{0};
  uint32_t held_ = 0;  // guarded by the pool's lock
};

// The pinned memory of a node: slabs, grown up to a budget, cut into frames. Every store is granted
// its minimum; what is left of the budget is shared out equally, to each no more than it wants, and
// anew whenever a store comes or goes. Thread-safe.
class FramePool {
 public:
  // Slabs are registered with the devices, which outlive the pool.
  FramePool(uint64_t budget_bytes, uint64_t slab_bytes, std::vector<device::Device*> devices = {});
  ~FramePool();  // all grants are gone

  // Waits for the others to give back what they hold beyond their new allowance.
  // RESOURCE_EXHAUSTED naming the budget if the minimum does not fit.
  absl::StatusOr<std::unique_ptr<FrameGrant>> Open(FrameDemand demand);

  v1::PoolStatus Status() const;

 private:
  friend class FrameGrant;

  struct Slab {
    base::AlignedBuffer memory;
    device::MemoryRegistration registration;
  };

  absl::Status Admit(FrameGrant& grant);
  void ShareOut() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::byte* Allocate(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(std::byte* data, uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Free runs are joined within a slab only.
  bool InOneSlab(const std::byte* first, const std::byte* second) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool AddSlab(uint64_t at_least) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static absl::StatusOr<Slab> MakeSlab(uint64_t bytes, const std::vector<device::Device*>& devices);
  bool HasMinimum(const FrameGrant& grant) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Close(FrameGrant* grant);

  const uint64_t budget_bytes_;
  const uint64_t slab_bytes_;
  const std::vector<device::Device*> devices_;
  std::array<std::atomic<uint64_t>, kFrameStates> counters_ = {};
  mutable absl::Mutex mutex_;
  uint64_t allocated_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Slab> slabs_ ABSL_GUARDED_BY(mutex_);
  absl::Status slab_error_ ABSL_GUARDED_BY(mutex_);              // of the last attempt to add one
  std::map<std::byte*, uint64_t> free_ ABSL_GUARDED_BY(mutex_);  // extents by address
  std::vector<FrameGrant*> grants_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moment::pipeline
