#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "daemon/io/io_engine.h"
#include "daemon/io/simulated_state.h"
#include "daemon/io/transfer_queue.h"

namespace moment::io {

// Moves bytes of a simulated disk on one thread of its own, which starts with the first transfer:
// in the order of submission, unless the disk's faults say otherwise.
// Threads: all from any.
class SimulatedEngine : public IoEngine {
 public:
  explicit SimulatedEngine(std::shared_ptr<SimulatedState> state);
  ~SimulatedEngine() override;  // releases what is held

  void Submit(Transfer* transfer) override;
  const char* name() const override { return "simulated"; }
  uint64_t OldestTransferNs() const override;

  void Hold();
  void Release();
  uint64_t held_transfers() const;

 private:
  bool MayLeaveWait() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void NoteOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Transfer* Next() ABSL_LOCKS_EXCLUDED(mutex_);
  void Requeue(Transfer* transfer) ABSL_LOCKS_EXCLUDED(mutex_);
  void Run();
  // The bytes of this move: all that is left, or a part.
  uint64_t PieceBytes(const Transfer& transfer);

  const std::shared_ptr<SimulatedState> state_;
  mutable absl::Mutex mutex_;
  TransferQueue queue_ ABSL_GUARDED_BY(mutex_);
  Transfer* moving_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
  SimulatedRandom random_;  // the engine thread's
  std::atomic<uint64_t> oldest_ns_{0};
};

}  // namespace moment::io
