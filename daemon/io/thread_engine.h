#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/io/engine_hooks.h"
#include "daemon/io/io_engine.h"
#include "daemon/io/transfer_ages.h"
#include "daemon/io/transfer_queue.h"

namespace moment::io {

// pread, pwrite and fdatasync on a fixed number of threads, each moving one transfer at a time.
// Needs nothing held in a ring: the kernel closes a killed process's files, and with them its
// locks, only after the last of its threads has left its system call.
// Threads: Submit and OldestTransferNs from any; `done` runs on one of the engine's.
class ThreadEngine : public IoEngine {
 public:
  ThreadEngine(uint32_t threads, const EngineHooks& hooks);
  ~ThreadEngine() override;
  ThreadEngine(const ThreadEngine&) = delete;
  ThreadEngine& operator=(const ThreadEngine&) = delete;

  void Submit(Transfer* transfer) override;
  const char* name() const override { return "threads"; }
  uint64_t OldestTransferNs() const override { return ages_.OldestNs(); }

 private:
  bool MayLeaveWait() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The next transfer, marked in flight in `slot`; null when the engine ends.
  Transfer* Next(uint32_t slot);
  void Run(uint32_t slot);
  absl::Status Move(Transfer* transfer) const;

  const EngineHooks hooks_;
  TransferAges ages_;
  absl::Mutex mutex_;
  TransferQueue queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace moment::io
