#include "daemon/device/ring.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/errors.h"

namespace moment::device {
namespace {

enum Event : uint32_t { kWake, kAcknowledged, kPeer };

uint32_t WireOp(TransportOp op) {
  switch (op) {
    case TransportOp::kGradientsIn:
      return v1::RING_OP_GRADIENTS_IN;
    case TransportOp::kParametersIn:
      return v1::RING_OP_PARAMETERS_IN;
    case TransportOp::kParametersOut:
      return v1::RING_OP_PARAMETERS_OUT;
    case TransportOp::kSegmentsIn:
      return v1::RING_OP_SEGMENTS_IN;
    case TransportOp::kSegmentsOut:
      return v1::RING_OP_SEGMENTS_OUT;
  }
  return 0;
}

absl::string_view BufferName(TransportOp op, uint32_t segment) {
  switch (op) {
    case TransportOp::kGradientsIn:
      return "gradient";
    case TransportOp::kParametersIn:
    case TransportOp::kParametersOut:
      return "parameter";
    case TransportOp::kSegmentsIn:
    case TransportOp::kSegmentsOut:
      return segment == v1::RING_SEGMENT_MAIN      ? "main"
             : segment == v1::RING_SEGMENT_EXP_AVG ? "exp_avg"
                                                   : "exp_avg_sq";
  }
  return "";
}

absl::Status CheckCommand(const TransportCommand& command, const RingGeometry& geometry) {
  if (command.slot >= geometry.slots) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring command for slot ", command.slot, " of ", geometry.slots));
  }
  if (command.runs.size() > geometry.max_runs) {
    return absl::InvalidArgumentError(absl::StrCat("ring command of ", command.runs.size(),
                                                   " runs, ", geometry.max_runs, " are possible"));
  }
  for (const TransportRun& run : command.runs) {
    if (run.slot_offset_bytes > geometry.slot_bytes ||
        run.length_bytes > geometry.slot_bytes - run.slot_offset_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("ring run of tensor ", run.tensor, " exceeds its slot"));
    }
  }
  return absl::OkStatus();
}

absl::Status MissingBuffer(const TransportCommand& command, uint32_t failed_run) {
  if (failed_run < command.runs.size()) {
    const TransportRun& run = command.runs[failed_run];
    return absl::InvalidArgumentError(absl::StrCat(
        "the trainer has no ", BufferName(command.op, run.segment), " buffer of tensor ",
        run.tensor, " that holds ", run.length_bytes, " bytes at ", run.tensor_offset_bytes));
  }
  if (command.runs.empty()) {
    return absl::InvalidArgumentError("the trainer has no buffers");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the trainer has no ", BufferName(command.op, command.runs.front().segment),
                   " buffer, or a smaller one, of one of the ", command.runs.size(), " tensors ",
                   command.runs.front().tensor, " to ", command.runs.back().tensor));
}

// How a command with this result ended; nullopt for a result that does not exist.
std::optional<absl::Status> StatusOf(const TransportCommand& command, uint32_t result,
                                     uint32_t failed_run) {
  switch (result) {
    case v1::RING_RESULT_OK:
      return absl::OkStatus();
    case v1::RING_RESULT_NO_BUFFER:
      return MissingBuffer(command, failed_run);
    case v1::RING_RESULT_BAD_COMMAND:
      return absl::InternalError(
          "the trainer's library refused a ring command as malformed; use the daemon's version");
    default:
      return std::nullopt;
  }
}

// A first-in first-out list through TransportCommand::next.
class CommandQueue {
 public:
  bool empty() const { return head_ == nullptr; }

  void Push(TransportCommand* command) {
    command->next = nullptr;
    (tail_ == nullptr ? head_ : tail_->next) = command;
    tail_ = command;
  }

  TransportCommand* Pop() {
    TransportCommand* command = head_;
    head_ = command->next;
    tail_ = head_ == nullptr ? nullptr : tail_;
    return command;
  }

 private:
  TransportCommand* head_ = nullptr;
  TransportCommand* tail_ = nullptr;
};

absl::Status AddToEpoll(int epoll, int fd, uint32_t events, Event event) {
  epoll_event added{};
  added.events = events;
  added.data.u32 = event;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &added) != 0) {
    return base::ErrnoStatus(errno, "epoll_ctl", "ring");
  }
  return absl::OkStatus();
}

// Never blocks, even where the client cleared O_NONBLOCK of the eventfd that it shares: one that
// cannot be raised wakes the client already.
void Signal(int event_fd) {
  pollfd writable{event_fd, POLLOUT, 0};
  if (::poll(&writable, 1, 0) == 1) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(event_fd, &one, sizeof(one));
  }
}

}  // namespace

struct RingTransport::State {
  struct Finished {
    TransportCommand* command = nullptr;
    absl::Status status;
  };

  explicit State(RingMemory ring_memory)
      : memory(std::move(ring_memory)), outstanding(memory.geometry().slots) {}

  absl::Status Start() {
    epoll = base::UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    wake = base::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!epoll.valid() || !wake.valid()) {
      return base::ErrnoStatus(errno, "create the events of", "ring");
    }
    // Edge-triggered and never read: the client, which shares it, cannot make a read block.
    MOMENT_RETURN_IF_ERROR(
        AddToEpoll(epoll.get(), memory.to_daemon(), EPOLLIN | EPOLLET, kAcknowledged));
    MOMENT_RETURN_IF_ERROR(AddToEpoll(epoll.get(), wake.get(), EPOLLIN, kWake));
    thread = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  void Stop() {
    Close(absl::AbortedError("the ring is gone"));
    {
      absl::MutexLock lock(&mutex);
      stopping = true;
    }
    Wake();
    if (thread.joinable()) {
      thread.join();
    }
  }

  void Wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake.get(), &one, sizeof(one));
  }

  void Close(const absl::Status& reason) {
    {
      absl::MutexLock lock(&mutex);
      CloseLocked(reason.message());
    }
    Wake();
  }

  void CloseLocked(absl::string_view message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (closed.ok()) {
      closed = absl::AbortedError(message);
    }
  }

  void Submit(TransportCommand* command) {
    const bool fits = CheckCommand(*command, memory.geometry()).ok();
    {
      absl::MutexLock lock(&mutex);
      (fits ? queued : rejected).Push(command);
      if (fits && closed.ok()) {
        IssueLocked();
        return;
      }
    }
    Wake();
  }

  void IssueLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    bool any = false;
    while (!queued.empty() && issued - completed < outstanding.size()) {
      WriteCommandLocked(queued.Pop());
      any = true;
    }
    if (any) {
      memory.header().issued.store(issued, std::memory_order_release);
      Signal(memory.to_client());
    }
  }

  void WriteCommandLocked(TransportCommand* command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const uint64_t entry = issued % outstanding.size();
    v1::RingRun* runs = memory.runs(entry);
    for (size_t i = 0; i < command->runs.size(); ++i) {
      const TransportRun& run = command->runs[i];
      runs[i] = {run.tensor, run.segment, run.tensor_offset_bytes, run.length_bytes,
                 run.slot_offset_bytes};
    }
    outstanding[entry] = command;
    ++issued;
    v1::RingCommand& written = memory.command(entry);
    written.ticket = issued;
    written.generation = generation;
    written.op = WireOp(command->op);
    written.slot = command->slot;
    written.run_count = static_cast<uint32_t>(command->runs.size());
    written.binding = command->binding;
    std::atomic_ref<uint32_t>(written.result)
        .store(v1::RING_RESULT_BAD_COMMAND, std::memory_order_relaxed);
    std::atomic_ref<uint32_t>(written.failed_run)
        .store(MOMENT_RING_NO_RUN, std::memory_order_relaxed);
  }

  // The transport's thread.
  void Run() {
    while (true) {
      const std::optional<Event> event = WaitForEvent();
      const bool last = Stopping();  // asked before delivering: Stop closes first
      DeliverFinished();
      if (event == kPeer) {
        Close(absl::AbortedError("the trainer's process ended"));
        DeliverFinished();
      }
      if (last) {
        return;
      }
    }
  }

  bool Stopping() {
    absl::MutexLock lock(&mutex);
    return stopping;
  }

  std::optional<Event> WaitForEvent() {
    epoll_event event{};
    if (::epoll_wait(epoll.get(), &event, 1, -1) != 1) {
      return std::nullopt;  // interrupted
    }
    if (event.data.u32 == kWake) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t taken = ::read(wake.get(), &count, sizeof(count));
    } else if (event.data.u32 == kPeer) {
      absl::MutexLock lock(&mutex);
      ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, peer.get(), nullptr);
    }
    return static_cast<Event>(event.data.u32);
  }

  void DeliverFinished() {
    while (std::optional<Finished> finished = NextFinished()) {
      finished->command->done(finished->command, std::move(finished->status));
    }
  }

  std::optional<Finished> NextFinished() {
    absl::MutexLock lock(&mutex);
    if (!rejected.empty()) {
      TransportCommand* command = rejected.Pop();
      return Finished{command, CheckCommand(*command, memory.geometry())};
    }
    if (closed.ok()) {
      if (std::optional<Finished> acknowledged = NextAcknowledgedLocked()) {
        return acknowledged;
      }
    }
    return closed.ok() ? std::nullopt : NextAbortedLocked();
  }

  // Takes the oldest command that the client says it executed; closes the ring instead if what it
  // says cannot be.
  std::optional<Finished> NextAcknowledgedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const uint64_t acknowledged = memory.header().completed.load(std::memory_order_acquire);
    if (acknowledged < completed || acknowledged > issued) {
      CloseLocked(absl::StrCat("the trainer acknowledged command ", acknowledged, " where ",
                               completed, " were done and ", issued, " issued"));
      return std::nullopt;
    }
    if (acknowledged == completed) {
      return std::nullopt;
    }
    const uint64_t entry = completed % outstanding.size();
    v1::RingCommand& written = memory.command(entry);
    const uint32_t result =
        std::atomic_ref<uint32_t>(written.result).load(std::memory_order_relaxed);
    const uint32_t failed_run =
        std::atomic_ref<uint32_t>(written.failed_run).load(std::memory_order_relaxed);
    std::optional<absl::Status> status = StatusOf(*outstanding[entry], result, failed_run);
    if (!status.has_value()) {
      CloseLocked(
          absl::StrCat("the trainer ended a ring command with the unknown result ", result));
      return std::nullopt;
    }
    ++completed;
    Finished finished{std::exchange(outstanding[entry], nullptr), *std::move(status)};
    IssueLocked();
    return finished;
  }

  std::optional<Finished> NextAbortedLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (completed < issued) {
      const uint64_t entry = completed % outstanding.size();
      ++completed;
      return Finished{std::exchange(outstanding[entry], nullptr), closed};
    }
    if (!queued.empty()) {
      return Finished{queued.Pop(), closed};
    }
    return std::nullopt;
  }

  absl::Status WatchPeer(int pidfd) {
    base::UniqueFd copy(::fcntl(pidfd, F_DUPFD_CLOEXEC, 0));
    if (!copy.valid()) {
      return base::ErrnoStatus(errno, "duplicate the pidfd of", "the trainer");
    }
    absl::MutexLock lock(&mutex);
    if (peer.valid()) {
      ::epoll_ctl(epoll.get(), EPOLL_CTL_DEL, peer.get(), nullptr);
    }
    peer = std::move(copy);
    const absl::Status added = AddToEpoll(epoll.get(), peer.get(), EPOLLIN, kPeer);
    return added.ok() ? added
                      : absl::InvalidArgumentError(
                            "the descriptor given as the trainer's pidfd "
                            "cannot be waited for");
  }

  const RingMemory memory;
  base::UniqueFd epoll;
  base::UniqueFd wake;
  std::thread thread;

  absl::Mutex mutex;
  absl::Status closed ABSL_GUARDED_BY(mutex);  // OK: open
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  base::UniqueFd peer ABSL_GUARDED_BY(mutex);
  uint64_t generation ABSL_GUARDED_BY(mutex) = 0;
  CommandQueue queued ABSL_GUARDED_BY(mutex);    // not issued yet
  CommandQueue rejected ABSL_GUARDED_BY(mutex);  // do not fit the ring
  uint64_t issued ABSL_GUARDED_BY(mutex) = 0;
  uint64_t completed ABSL_GUARDED_BY(mutex) = 0;
  std::vector<TransportCommand*> outstanding ABSL_GUARDED_BY(mutex);  // by entry
};

RingTransport::RingTransport(std::unique_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<RingTransport>> RingTransport::Create(const RingGeometry& geometry) {
  MOMENT_ASSIGN_OR_RETURN(RingMemory memory, RingMemory::Create(geometry));
  auto state = std::make_unique<State>(std::move(memory));
  MOMENT_RETURN_IF_ERROR(state->Start());
  return std::unique_ptr<RingTransport>(new RingTransport(std::move(state)));
}

RingTransport::~RingTransport() { state_->Stop(); }

uint32_t RingTransport::slot_count() const { return state_->memory.geometry().slots; }
uint64_t RingTransport::slot_bytes() const { return state_->memory.geometry().slot_bytes; }
uint32_t RingTransport::max_runs() const { return state_->memory.geometry().max_runs; }
std::span<std::byte> RingTransport::slot(uint32_t index) const {
  return state_->memory.slot(index);
}

void RingTransport::Submit(TransportCommand* command) { state_->Submit(command); }

std::array<int, 4> RingTransport::descriptors() const { return state_->memory.descriptors(); }

void RingTransport::SetGeneration(uint64_t generation) {
  absl::MutexLock lock(&state_->mutex);
  state_->generation = generation;
}

absl::Status RingTransport::WatchPeer(int pidfd) { return state_->WatchPeer(pidfd); }

void RingTransport::Close(const absl::Status& reason) { state_->Close(reason); }

}  // namespace moment::device
