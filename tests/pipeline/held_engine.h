#pragma once

#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/io/io_engine.h"

namespace moment::pipeline {

// Passes transfers on, but keeps writes of some files back until they are released.
class HeldEngine : public io::IoEngine {
 public:
  explicit HeldEngine(io::IoEngine& engine) : engine_(engine) {}

  void HoldWrites(const std::string& substring) {
    absl::MutexLock lock(&mutex_);
    substring_ = substring;
  }
  void Release() {
    std::vector<io::Transfer*> held;
    {
      absl::MutexLock lock(&mutex_);
      substring_.clear();
      held.swap(held_);
    }
    for (io::Transfer* transfer : held) {
      engine_.Submit(transfer);
    }
  }

  void Submit(io::Transfer* transfer) override {
    {
      absl::MutexLock lock(&mutex_);
      if (!substring_.empty() && transfer->op == io::IoOp::kWrite &&
          transfer->file->path().find(substring_) != std::string::npos) {
        held_.push_back(transfer);
        return;
      }
    }
    engine_.Submit(transfer);
  }
  const char* name() const override { return engine_.name(); }
  uint64_t OldestTransferNs() const override { return engine_.OldestTransferNs(); }

 private:
  io::IoEngine& engine_;
  absl::Mutex mutex_;
  std::string substring_ ABSL_GUARDED_BY(mutex_);
  std::vector<io::Transfer*> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moment::pipeline
