#include "client/src/ring_executor.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/errors.h"
#include "client/src/process.h"

namespace moment::client {
namespace {

void Signal(const UniqueFd& eventfd) {
  const uint64_t one = 1;
  while (::write(eventfd.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void Drain(const UniqueFd& eventfd) {
  uint64_t count = 0;
  while (::read(eventfd.get(), &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace

absl::StatusOr<Mapping> Mapping::Of(const UniqueFd& fd, const char* what) {
  struct stat status;
  if (::fstat(fd.get(), &status) != 0) {
    return FromErrno(errno, "looking at", what);
  }
  Mapping mapping;
  mapping.length_bytes_ = static_cast<uint64_t>(status.st_size);
  void* address =
      ::mmap(nullptr, mapping.length_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) {
    return FromErrno(errno, "mapping", what);
  }
  mapping.data_ = static_cast<std::byte*>(address);
  // A forked DataLoader worker would keep the daemon's slots alive after the trainer's death.
  ::madvise(address, mapping.length_bytes_, MADV_DONTFORK);
  return mapping;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      length_bytes_(std::exchange(other.length_bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(length_bytes_, other.length_bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) {
    ::munmap(data_, length_bytes_);
  }
}

absl::StatusOr<std::unique_ptr<RingExecutor>> RingExecutor::Start(RingDescriptors descriptors,
                                                                  TensorTable* table) {
  std::unique_ptr<RingExecutor> ring(new RingExecutor(table));
  MOMENT_CLIENT_RETURN_IF_ERROR(ring->Map(std::move(descriptors)));
  ring->stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
  if (!ring->stop_.valid()) {
    return FromErrno(errno, "making an eventfd for", "the ring");
  }
  const SignalsBlocked blocked;
  ring->thread_ = std::thread([raw = ring.get()] { raw->Loop(); });
  return ring;
}

RingExecutor::~RingExecutor() {
  if (thread_.joinable()) {
    Signal(stop_);
    thread_.join();
  }
}

absl::Status RingExecutor::Map(RingDescriptors descriptors) {
  descriptors_ = std::move(descriptors);
  absl::StatusOr<Mapping> control = Mapping::Of(descriptors_.control, "the ring's control page");
  absl::StatusOr<Mapping> slots = Mapping::Of(descriptors_.slots, "the ring's slots");
  if (!control.ok() || !slots.ok()) {
    return control.ok() ? slots.status() : control.status();
  }
  control_ = *std::move(control);
  slots_ = *std::move(slots);
  if (control_.length_bytes() < sizeof(v1::RingHeader)) {
    return absl::InternalError("the ring's control page is shorter than its header");
  }
  header_ = reinterpret_cast<v1::RingHeader*>(control_.data());
  if (header_->magic != MOMENT_RING_MAGIC || header_->version != 1) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the daemon's ring has version ", header_->version, ", this client knows version 1"));
  }
  slot_count_ = header_->slots;
  slot_bytes_ = header_->slot_bytes;
  max_runs_ = header_->max_runs;
  const uint64_t need = sizeof(v1::RingHeader) + uint64_t{slot_count_} * sizeof(v1::RingCommand) +
                        uint64_t{slot_count_} * max_runs_ * sizeof(v1::RingRun);
  if (slot_count_ == 0 || control_.length_bytes() < need ||
      slots_.length_bytes() / slot_count_ < slot_bytes_) {
    return absl::InternalError("the ring's memory is shorter than its header says");
  }
  gpu_.SetPinned(slots_.data(), slots_.length_bytes());
  commands_ = reinterpret_cast<v1::RingCommand*>(control_.data() + sizeof(v1::RingHeader));
  runs_ = reinterpret_cast<v1::RingRun*>(commands_ + slot_count_);
  in_work_.resize(slot_count_);
  completed_ = header_->completed.load(std::memory_order_acquire);
  return absl::OkStatus();
}

void RingExecutor::Loop() {
  pollfd waits[2] = {{descriptors_.to_client.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
  for (;;) {
    ExecuteIssued();
    if (::poll(waits, 2, -1) < 0 && errno != EINTR) {
      return;
    }
    if ((waits[1].revents & POLLIN) != 0) {
      return;
    }
    if ((waits[0].revents & POLLIN) != 0) {
      Drain(descriptors_.to_client);
    }
  }
}

// Copies of host memory are done when a command was started; those of GPU memory go on beside the
// next commands, each slot's on its own stream, and are waited for in order. The table stays locked
// until none is left, so that no buffer goes away under them.
void RingExecutor::ExecuteIssued() {
  if (header_->issued.load(std::memory_order_acquire) == completed_) {
    return;
  }
  absl::MutexLock lock(&table_->mutex());
  uint64_t started = completed_;
  do {
    const uint64_t issued = header_->issued.load(std::memory_order_acquire);
    for (; started < issued && started - completed_ < slot_count_; ++started) {
      in_work_[started % slot_count_] = Begin(started);
    }
    Complete(in_work_[completed_ % slot_count_]);
  } while (completed_ < started || header_->issued.load(std::memory_order_acquire) > completed_);
}

RingExecutor::InWork RingExecutor::Begin(uint64_t number) {
  const uint64_t index = number % slot_count_;
  InWork work;
  work.command = commands_[index];
  if (work.command.ticket == number + 1 && work.command.slot < slot_count_ &&
      work.command.run_count <= max_runs_) {
    work.result = Execute(work.command, runs_ + index * max_runs_, &work.failed_run);
  }
  return work;
}

void RingExecutor::Complete(InWork& work) {
  // Whatever happened: no copy goes on after its command.
  if (!gpu_.Finish(work.command.slot) && work.result == v1::RING_RESULT_OK) {
    work.failed_run = 0;
    work.result = v1::RING_RESULT_NO_BUFFER;
  }
  const uint64_t index = completed_ % slot_count_;
  commands_[index].result = work.result;
  commands_[index].failed_run = work.failed_run;
  header_->completed.store(++completed_, std::memory_order_release);
  Signal(descriptors_.to_daemon);
}

v1::RingResult RingExecutor::Execute(const v1::RingCommand& command, const v1::RingRun* runs,
                                     uint32_t* failed_run) {
  table_->mutex().AssertHeld();
  if (command.op < v1::RING_OP_GRADIENTS_IN || command.op > v1::RING_OP_SEGMENTS_OUT) {
    return v1::RING_RESULT_BAD_COMMAND;
  }
  if (command.generation != table_->generation()) {
    return v1::RING_RESULT_NO_BUFFER;
  }
  if (command.op == v1::RING_OP_PARAMETERS_OUT) {
    parameter_writes_.fetch_add(1, std::memory_order_acq_rel);
  }
  for (uint32_t i = 0; i < command.run_count; ++i) {
    const v1::RingRun run = runs[i];
    if (const v1::RingResult result = Copy(command, run); result != v1::RING_RESULT_OK) {
      *failed_run = i;
      return result;
    }
  }
  return v1::RING_RESULT_OK;
}

// The trainer's memory of a run; without data if there is none.
Buffer RingExecutor::Find(const v1::RingCommand& command, const v1::RingRun& run) const {
  table_->mutex().AssertHeld();
  if (command.op == v1::RING_OP_SEGMENTS_IN || command.op == v1::RING_OP_SEGMENTS_OUT) {
    return table_->FindSegment(command.binding, run.tensor, run.segment, run.tensor_offset_bytes,
                               run.length_bytes);
  }
  const auto kind = command.op == v1::RING_OP_GRADIENTS_IN ? TensorTable::Kind::kGradient
                                                           : TensorTable::Kind::kParameter;
  return table_->Find(kind, run.tensor, run.tensor_offset_bytes, run.length_bytes);
}

v1::RingResult RingExecutor::Copy(const v1::RingCommand& command, const v1::RingRun& run) {
  if (run.slot_offset_bytes > slot_bytes_ ||
      run.length_bytes > slot_bytes_ - run.slot_offset_bytes) {
    return v1::RING_RESULT_BAD_COMMAND;
  }
  const Buffer buffer = Find(command, run);
  if (buffer.data == nullptr) {
    return run.length_bytes == 0 ? v1::RING_RESULT_OK : v1::RING_RESULT_NO_BUFFER;
  }
  std::byte* slot = slots_.data() + command.slot * slot_bytes_ + run.slot_offset_bytes;
  const bool out =
      command.op == v1::RING_OP_PARAMETERS_OUT || command.op == v1::RING_OP_SEGMENTS_OUT;
  std::byte* const to = out ? buffer.data : slot;
  const std::byte* const from = out ? slot : buffer.data;
  if (buffer.gpu >= 0) {
    return gpu_.Start(buffer.gpu, command.slot, to, from, run.length_bytes)
               ? v1::RING_RESULT_OK
               : v1::RING_RESULT_NO_BUFFER;
  }
  std::memcpy(to, from, run.length_bytes);
  return v1::RING_RESULT_OK;
}

}  // namespace moment::client
