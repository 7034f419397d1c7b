#include "daemon/io/thread_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "daemon/base/errors.h"

namespace moment::io {
namespace {

int64_t SystemMove(const Transfer& transfer, uint64_t piece_bytes) {
  const int fd = transfer.file->fd();
  std::byte* data = transfer.data + transfer.progress;
  const auto offset = static_cast<off_t>(transfer.offset + transfer.progress);
  int64_t result = 0;
  switch (transfer.op) {
    case IoOp::kRead:
      result = ::pread(fd, data, piece_bytes, offset);
      break;
    case IoOp::kWrite:
      result = ::pwrite(fd, data, piece_bytes, offset);
      break;
    case IoOp::kSync:
      result = ::fdatasync(fd);
      break;
  }
  return result < 0 ? -errno : result;
}

}  // namespace

ThreadEngine::ThreadEngine(uint32_t threads, const EngineHooks& hooks)
    : hooks_(hooks), ages_(std::max(threads, 1U)) {
  const uint32_t count = std::max(threads, 1U);
  threads_.reserve(count);
  for (uint32_t slot = 0; slot < count; ++slot) {
    threads_.emplace_back([this, slot] { Run(slot); });
  }
}

ThreadEngine::~ThreadEngine() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void ThreadEngine::Submit(Transfer* transfer) {
  transfer->progress = 0;
  transfer->attempts = 0;
  transfer->submitted_ns = NowNs();
  absl::MutexLock lock(&mutex_);
  if (queue_.empty()) {
    ages_.SetFirstWaiting(transfer->submitted_ns);
  }
  queue_.Push(transfer);
}

bool ThreadEngine::MayLeaveWait() const { return stopping_ || !queue_.empty(); }

Transfer* ThreadEngine::Next(uint32_t slot) {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &ThreadEngine::MayLeaveWait));
  Transfer* transfer = queue_.Pop();
  if (transfer != nullptr) {
    ages_.SetInFlight(slot, transfer->submitted_ns);
    ages_.SetFirstWaiting(queue_.empty() ? 0 : queue_.front()->submitted_ns);
  }
  return transfer;
}

void ThreadEngine::Run(uint32_t slot) {
  while (Transfer* transfer = Next(slot)) {
    absl::Status status = Move(transfer);
    ages_.SetInFlight(slot, 0);
    transfer->done(transfer, std::move(status));
  }
}

absl::Status ThreadEngine::Move(Transfer* transfer) const {
  MOMENT_RETURN_IF_ERROR(CheckBeforeMove(*transfer));
  if (transfer->op != IoOp::kSync && transfer->length == 0) {
    return absl::OkStatus();
  }
  absl::Status status;
  while (true) {
    const uint64_t piece = std::min(transfer->length - transfer->progress, hooks_.max_piece_bytes);
    int64_t result = SystemMove(*transfer, piece);
    if (hooks_.result) {
      result = hooks_.result(*transfer, result);
    }
    if (Advance(transfer, piece, result, &status) == NextMove::kFinished) {
      return status;
    }
  }
}

}  // namespace moment::io
