#include "daemon/io/simulated_engine.h"

#include <algorithm>
#include <utility>

#include "daemon/base/memory.h"
#include "daemon/io/transfer_ages.h"
#include "daemon/io/transfer_progress.h"

namespace moment::io {

SimulatedEngine::SimulatedEngine(std::shared_ptr<SimulatedState> state)
    : state_(std::move(state)), random_(~state_->faults.seed) {}

SimulatedEngine::~SimulatedEngine() {
  std::thread thread;
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    thread = std::move(thread_);
  }
  if (thread.joinable()) {
    thread.join();
  }
}

void SimulatedEngine::Submit(Transfer* transfer) {
  transfer->progress = 0;
  transfer->attempts = 0;
  transfer->submitted_ns = NowNs();
  absl::MutexLock lock(&mutex_);
  queue_.Push(transfer);
  NoteOldest();
  if (!thread_.joinable() && !stopping_) {
    thread_ = std::thread([this] { Run(); });
  }
}

void SimulatedEngine::NoteOldest() {
  uint64_t oldest = moving_ == nullptr ? UINT64_MAX : moving_->submitted_ns;
  for (const Transfer* waiting = queue_.front(); waiting != nullptr; waiting = waiting->next) {
    oldest = std::min(oldest, waiting->submitted_ns);
    if (!state_->faults.reorder && !state_->faults.short_transfers) {
      break;  // the first is the oldest
    }
  }
  oldest_ns_.store(oldest == UINT64_MAX ? 0 : oldest, std::memory_order_relaxed);
}

uint64_t SimulatedEngine::OldestTransferNs() const {
  const uint64_t oldest = oldest_ns_.load(std::memory_order_relaxed);
  const uint64_t current = NowNs();
  return oldest == 0 || oldest > current ? 0 : current - oldest;
}

void SimulatedEngine::Hold() {
  absl::MutexLock lock(&mutex_);
  held_ = true;
}

void SimulatedEngine::Release() {
  absl::MutexLock lock(&mutex_);
  held_ = false;
}

uint64_t SimulatedEngine::held_transfers() const {
  absl::MutexLock lock(&mutex_);
  return held_ ? queue_.count() : 0;
}

bool SimulatedEngine::MayLeaveWait() const { return stopping_ || (!held_ && !queue_.empty()); }

Transfer* SimulatedEngine::Next() {
  absl::MutexLock lock(&mutex_);
  moving_ = nullptr;
  NoteOldest();
  mutex_.Await(absl::Condition(this, &SimulatedEngine::MayLeaveWait));
  if (!queue_.empty()) {
    moving_ = queue_.Take(state_->faults.reorder ? random_.Below(queue_.count()) : 0);
  }
  return moving_;
}

void SimulatedEngine::Requeue(Transfer* transfer) {
  absl::MutexLock lock(&mutex_);
  queue_.Push(transfer);
}

uint64_t SimulatedEngine::PieceBytes(const Transfer& transfer) {
  const uint64_t left = transfer.length - transfer.progress;
  const uint64_t unit = transfer.file->direct() ? base::kIoAlignment : 1;
  if (!state_->faults.short_transfers || transfer.progress > 0 || left <= unit) {
    return left;
  }
  return unit * (1 + random_.Below((left - 1) / unit));
}

void SimulatedEngine::Run() {
  while (Transfer* transfer = Next()) {
    absl::Status status = CheckAlignment(*transfer);
    const bool empty = transfer->op != IoOp::kSync && transfer->length == 0;
    if (status.ok() && !empty) {
      const uint64_t piece = transfer->op == IoOp::kSync ? 0 : PieceBytes(*transfer);
      status = state_->Move(*transfer, piece);
      transfer->progress += piece;
    }
    if (status.ok() && transfer->progress < transfer->length) {
      Requeue(transfer);
    } else {
      {
        absl::MutexLock lock(&mutex_);
        moving_ = nullptr;  // its owner may free it from here on
        NoteOldest();
      }
      transfer->done(transfer, std::move(status));
    }
  }
}

}  // namespace moment::io
