#include "tests/client/fake_ring.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>

namespace moment::testing {
namespace {

constexpr int kAnswerTimeoutMs = 5000;

client::UniqueFd MakeMemfd(const char* name, uint64_t length_bytes) {
  client::UniqueFd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (::ftruncate(fd.get(), static_cast<off_t>(length_bytes)) != 0) {
    std::abort();
  }
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return fd;
}

client::UniqueFd Duplicate(const client::UniqueFd& fd) {
  return client::UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
}

}  // namespace

FakeRing::FakeRing(uint32_t slots, uint64_t slot_bytes, uint32_t max_runs)
    : slot_count_(slots), slot_bytes_(slot_bytes), max_runs_(max_runs) {
  control_fd_ = MakeMemfd("control", sizeof(v1::RingHeader) + slots * sizeof(v1::RingCommand) +
                                         uint64_t{slots} * max_runs * sizeof(v1::RingRun));
  slots_fd_ = MakeMemfd("slots", slots * slot_bytes);
  to_client_ = client::UniqueFd(::eventfd(0, EFD_CLOEXEC));
  to_daemon_ = client::UniqueFd(::eventfd(0, EFD_CLOEXEC));
  control_ = *client::Mapping::Of(control_fd_, "control");
  slots_ = *client::Mapping::Of(slots_fd_, "slots");
  header()->magic = MOMENT_RING_MAGIC;
  header()->version = 1;
  header()->slots = slots;
  header()->slot_bytes = slot_bytes;
  header()->max_runs = max_runs;
}

client::RingDescriptors FakeRing::Descriptors() const {
  return {Duplicate(control_fd_), Duplicate(slots_fd_), Duplicate(to_client_),
          Duplicate(to_daemon_)};
}

v1::RingResult FakeRing::Run(v1::RingOp op, uint64_t generation, v1::RingRun run,
                             uint64_t binding) {
  v1::RingCommand command = {};
  command.ticket = issued_ + 1;
  command.generation = generation;
  command.op = op;
  command.run_count = 1;
  command.binding = binding;
  return RunRaw(command, {run});
}

v1::RingResult FakeRing::RunRaw(v1::RingCommand command, const std::vector<v1::RingRun>& runs) {
  auto* commands = reinterpret_cast<v1::RingCommand*>(control_.data() + sizeof(v1::RingHeader));
  auto* entries = reinterpret_cast<v1::RingRun*>(commands + slot_count_);
  const uint64_t index = issued_ % slot_count_;
  commands[index] = command;
  for (size_t i = 0; i < runs.size(); ++i) {
    entries[index * max_runs_ + i] = runs[i];
  }
  header()->issued.store(++issued_, std::memory_order_release);
  const uint64_t one = 1;
  if (::write(to_client_.get(), &one, sizeof one) < 0) {
    std::abort();
  }
  while (header()->completed.load(std::memory_order_acquire) < issued_) {
    pollfd wait = {to_daemon_.get(), POLLIN, 0};
    if (::poll(&wait, 1, kAnswerTimeoutMs) <= 0) {
      timed_out_ = true;
      return v1::RING_RESULT_BAD_COMMAND;
    }
    uint64_t count = 0;
    if (::read(to_daemon_.get(), &count, sizeof count) < 0) {
      std::abort();
    }
  }
  return static_cast<v1::RingResult>(commands[index].result);
}

}  // namespace moment::testing
