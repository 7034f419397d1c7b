#include "daemon/io/uring_engine.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/synchronization/notification.h"

namespace moment::io {
namespace {

constexpr uint32_t kMaxDepth = 4096;
constexpr uint64_t kWakeUserData = UINT64_MAX;

// The kernel may still read or write the buffers of transfers whose end we can no longer learn:
// nobody may be told that they ended, and nobody can go on. The disk's state is that of a crash.
[[noreturn]] void Die(const char* what, int error) {
  std::fprintf(stderr, "io_uring: %s: %s; transfers in flight are lost, the process ends\n", what,
               std::strerror(error));
  std::abort();
}

void Prepare(io_uring_sqe* sqe, const Transfer& transfer, uint64_t piece_bytes) {
  const int fd = transfer.file->fd();
  std::byte* data = transfer.data + transfer.progress;
  const auto length = static_cast<unsigned>(piece_bytes);  // at most kMaxPieceBytes
  const uint64_t offset = transfer.offset + transfer.progress;
  switch (transfer.op) {
    case IoOp::kRead:
      io_uring_prep_read(sqe, fd, data, length, offset);
      break;
    case IoOp::kWrite:
      io_uring_prep_write(sqe, fd, data, length, offset);
      break;
    case IoOp::kSync:
      io_uring_prep_fsync(sqe, fd, IORING_FSYNC_DATASYNC);
      break;
  }
}

}  // namespace

std::unique_ptr<UringEngine> UringEngine::Create(const EngineOptions& options,
                                                 const EngineHooks& hooks, RingRefusal* refusal) {
  base::UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) {
    *refusal = {errno, "eventfd"};
    return nullptr;
  }
  std::unique_ptr<UringEngine> engine(new UringEngine(options, hooks, std::move(wake)));
  absl::Notification opened;
  bool open = false;
  engine->thread_ = std::thread([&, self = engine.get()] {
    open = self->ring_.Open(self->OptionsOfRing(options), refusal);
    const bool runs = open;  // the creator's variables end with the notification
    opened.Notify();
    if (runs) {
      self->Run();
    }
  });
  opened.WaitForNotification();
  return open ? std::move(engine) : nullptr;
}

UringEngine::UringEngine(const EngineOptions& options, const EngineHooks& hooks,
                         base::UniqueFd wake)
    : hooks_(hooks),
      depth_(std::clamp(options.depth, 1U, kMaxDepth)),
      wake_(std::move(wake)),
      ages_(depth_),
      slots_(depth_) {
  free_slots_.reserve(depth_);
  again_.reserve(depth_);
  for (uint32_t index = depth_; index > 0; --index) {
    free_slots_.push_back(index - 1);
  }
}

RingOptions UringEngine::OptionsOfRing(const EngineOptions& options) const {
  RingOptions ring;
  // One entry more than the depth: the wake-up.
  ring.submission_entries = hooks_.ring_entries == 0 ? depth_ + 1 : hooks_.ring_entries;
  ring.completion_entries = hooks_.ring_entries == 0 ? 2 * (depth_ + 1) : hooks_.ring_entries;
  ring.held_fds = options.held_fds;
  ring.refuse = hooks_.refuse_ring;
  return ring;
}

UringEngine::~UringEngine() {
  stopping_.store(true, std::memory_order_release);
  Wake();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void UringEngine::Wake() {
  const uint64_t one = 1;
  // A full counter (EAGAIN) wakes as well.
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof(one));
}

void UringEngine::Submit(Transfer* transfer) {
  transfer->progress = 0;
  transfer->attempts = 0;
  transfer->submitted_ns = NowNs();
  ages_.SetFirstWaitingIfNone(transfer->submitted_ns);
  if (inbox_.Put(transfer)) {
    Wake();
  }
}

void UringEngine::Run() {
  while (true) {
    inbox_.TakeAll(&waiting_);
    StartWaiting();
    if (Finished()) {
      return;
    }
    ArmWake();
    SubmitAndWait();
    Reap();
  }
}

bool UringEngine::Finished() const {
  return stopping_.load(std::memory_order_acquire) && !wake_armed_ &&
         free_slots_.size() == depth_ && waiting_.empty() && inbox_.empty();
}

void UringEngine::StartWaiting() {
  while (!again_.empty() && SubmitMove(again_.back())) {
    again_.pop_back();
  }
  while (!waiting_.empty() && !free_slots_.empty() && again_.empty()) {
    StartTransfer(waiting_.Pop());
  }
  ages_.SetFirstWaiting(waiting_.empty() ? 0 : waiting_.front()->submitted_ns);
}

void UringEngine::StartTransfer(Transfer* transfer) {
  const uint32_t index = free_slots_.back();
  free_slots_.pop_back();
  slots_[index].transfer = transfer;
  ages_.SetInFlight(index, transfer->submitted_ns);
  absl::Status status = CheckBeforeMove(*transfer);
  if (!status.ok() || (transfer->op != IoOp::kSync && transfer->length == 0)) {
    Finish(index, std::move(status));
  } else if (!SubmitMove(index)) {
    again_.push_back(index);
  }
}

io_uring_sqe* UringEngine::NextSqe() {
  io_uring_sqe* sqe = io_uring_get_sqe(ring_.get());
  if (sqe == nullptr) {
    // The submission queue is full; whatever keeps it so (EBUSY, EAGAIN) ends with reaping.
    io_uring_submit(ring_.get());
    sqe = io_uring_get_sqe(ring_.get());
  }
  return sqe;
}

bool UringEngine::SubmitMove(uint32_t index) {
  io_uring_sqe* sqe = NextSqe();
  if (sqe == nullptr) {
    return false;
  }
  Slot& slot = slots_[index];
  const Transfer& transfer = *slot.transfer;
  slot.piece_bytes = std::min(transfer.length - transfer.progress, hooks_.max_piece_bytes);
  Prepare(sqe, transfer, slot.piece_bytes);
  io_uring_sqe_set_data64(sqe, index);
  return true;
}

void UringEngine::ArmWake() {
  if (wake_armed_ || stopping_.load(std::memory_order_acquire)) {
    return;
  }
  if (io_uring_sqe* sqe = NextSqe(); sqe != nullptr) {
    io_uring_prep_poll_add(sqe, wake_.get(), POLLIN);
    io_uring_sqe_set_data64(sqe, kWakeUserData);
    wake_armed_ = true;
  }
}

void UringEngine::SubmitAndWait() {
  const int result = io_uring_submit_and_wait(ring_.get(), 1);
  if (result >= 0 || result == -EINTR) {
    return;
  }
  if (result != -EAGAIN && result != -EBUSY) {
    Die("io_uring_enter", -result);
  }
  // EBUSY: completions that overflowed want reaping first. EAGAIN: no memory for a request; the
  // transfers wait, and their age shows it.
  ::sched_yield();
}

void UringEngine::Reap() {
  if (io_uring_cq_has_overflow(ring_.get())) {
    overflows_.fetch_add(1, std::memory_order_relaxed);
  }
  io_uring_cqe* cqe = nullptr;
  // Peeking fetches what overflowed, once the queue is empty.
  while (io_uring_peek_cqe(ring_.get(), &cqe) == 0) {
    const uint64_t user_data = io_uring_cqe_get_data64(cqe);
    const int32_t result = cqe->res;
    io_uring_cqe_seen(ring_.get(), cqe);
    Complete(user_data, result);
  }
  if (__atomic_load_n(ring_.get()->cq.koverflow, __ATOMIC_ACQUIRE) != 0) {
    Die("a completion was dropped", ENOBUFS);
  }
}

void UringEngine::Complete(uint64_t user_data, int32_t result) {
  if (user_data == kWakeUserData) {
    wake_armed_ = false;
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof(count));
    return;
  }
  const auto index = static_cast<uint32_t>(user_data);
  Slot& slot = slots_[index];
  const int64_t seen = hooks_.result ? hooks_.result(*slot.transfer, result) : result;
  absl::Status status;
  if (Advance(slot.transfer, slot.piece_bytes, seen, &status) == NextMove::kAgain) {
    again_.push_back(index);
  } else {
    Finish(index, std::move(status));
  }
}

void UringEngine::Finish(uint32_t index, absl::Status status) {
  Transfer* transfer = std::exchange(slots_[index].transfer, nullptr);
  ages_.SetInFlight(index, 0);
  free_slots_.push_back(index);
  transfer->done(transfer, std::move(status));
}

}  // namespace moment::io
