#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "daemon/base/fd.h"
#include "daemon/io/engine_hooks.h"
#include "daemon/io/io_engine.h"
#include "daemon/io/ring.h"
#include "daemon/io/transfer_ages.h"
#include "daemon/io/transfer_inbox.h"
#include "daemon/io/transfer_queue.h"

namespace moment::io {

// Moves bytes through one io_uring, with at most `depth` transfers in the kernel.
//
// The held descriptors are registered files of the ring. A killed process's ring ends only when its
// last write has ended, and only then are they closed: a lock held through one is not free before.
//
// Threads: Submit and OldestTransferNs from any, without lock or allocation. One thread of the
// engine's owns the ring: it submits, reaps and runs every `done`; an eventfd wakes it.
class UringEngine : public IoEngine {
 public:
  // Null when the system refuses a ring, with the reason in `refusal`.
  static std::unique_ptr<UringEngine> Create(const EngineOptions& options, const EngineHooks& hooks,
                                             RingRefusal* refusal);
  ~UringEngine() override;

  void Submit(Transfer* transfer) override;
  const char* name() const override { return "io_uring"; }
  uint64_t OldestTransferNs() const override { return ages_.OldestNs(); }

  // How often the completion queue was found to have overflowed. By itself it never does: it has
  // room for the whole depth.
  uint64_t overflows() const { return overflows_.load(std::memory_order_relaxed); }

 private:
  // A transfer in the kernel, or about to be moved again.
  struct Slot {
    Transfer* transfer = nullptr;
    uint64_t piece_bytes = 0;  // of the move under way
  };

  UringEngine(const EngineOptions& options, const EngineHooks& hooks, base::UniqueFd wake);

  RingOptions OptionsOfRing(const EngineOptions& options) const;
  void Wake();

  // All below run on the engine's thread.
  void Run();
  bool Finished() const;
  void StartWaiting();
  void StartTransfer(Transfer* transfer);
  void ArmWake();
  io_uring_sqe* NextSqe();
  bool SubmitMove(uint32_t index);
  void SubmitAndWait();
  void Reap();
  void Complete(uint64_t user_data, int32_t result);
  void Finish(uint32_t index, absl::Status status);

  const EngineHooks hooks_;
  const uint32_t depth_;
  const base::UniqueFd wake_;  // eventfd
  TransferInbox inbox_;
  TransferAges ages_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> overflows_{0};

  Ring ring_;
  TransferQueue waiting_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<uint32_t> again_;  // slots whose next move is not submitted
  bool wake_armed_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace moment::io
