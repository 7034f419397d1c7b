#include "tests/device/ring_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace moment::device {
namespace {

std::byte* Map(int fd, uint64_t* length_bytes) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    std::abort();
  }
  *length_bytes = static_cast<uint64_t>(status.st_size);
  void* data = ::mmap(nullptr, *length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    std::abort();
  }
  return static_cast<std::byte*>(data);
}

}  // namespace

RingClient::RingClient(const std::array<int, 4>& descriptors, bool run)
    : stop_(::eventfd(0, EFD_CLOEXEC)) {
  for (size_t i = 0; i < fds_.size(); ++i) {
    fds_[i] = base::UniqueFd(::fcntl(descriptors[i], F_DUPFD_CLOEXEC, 0));
  }
  control_ = Map(fds_[0].get(), &control_bytes_);
  slots_ = Map(fds_[1].get(), &slots_bytes_);
  if (header().magic != MOMENT_RING_MAGIC || header().version != 1) {
    std::abort();
  }
  if (run) {
    thread_ = std::thread([this] { Run(); });
  }
}

RingClient::~RingClient() {
  const uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof(one)) != sizeof(one)) {
    std::abort();
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  ::munmap(control_, control_bytes_);
  ::munmap(slots_, slots_bytes_);
}

v1::RingCommand& RingClient::command(uint64_t entry) {
  return reinterpret_cast<v1::RingCommand*>(control_ + sizeof(v1::RingHeader))[entry];
}

v1::RingRun* RingClient::runs(uint64_t entry) {
  std::byte* first = control_ + sizeof(v1::RingHeader) + header().slots * sizeof(v1::RingCommand);
  return reinterpret_cast<v1::RingRun*>(first) + entry * header().max_runs;
}

void RingClient::WaitForIssued(uint64_t issued) {
  while (header().issued.load(std::memory_order_acquire) < issued) {
    pollfd event{fds_[2].get(), POLLIN, 0};
    ::poll(&event, 1, -1);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = ::read(fds_[2].get(), &count, sizeof(count));
  }
}

void RingClient::SetTensor(uint32_t index, Tensor tensor) {
  absl::MutexLock lock(&mutex_);
  tensors_[index] = tensor;
}

void RingClient::WaitForIdle() { absl::MutexLock lock(&mutex_); }

uint64_t RingClient::ExecuteOne() {
  const uint64_t done = header().completed.load(std::memory_order_relaxed);
  const uint64_t entry = done % header().slots;
  uint32_t failed_run = MOMENT_RING_NO_RUN;
  const uint32_t result = Execute(command(entry), runs(entry), &failed_run);
  command(entry).failed_run = failed_run;
  command(entry).result = result;
  header().completed.store(done + 1, std::memory_order_release);
  Signal();
  return done + 1;
}

void RingClient::Signal() {
  const uint64_t one = 1;
  if (::write(fds_[3].get(), &one, sizeof(one)) != sizeof(one)) {
    std::abort();
  }
}

uint32_t RingClient::Execute(const v1::RingCommand& command, const v1::RingRun* runs,
                             uint32_t* failed_run) {
  absl::MutexLock lock(&mutex_);
  std::byte* slot = slots_ + command.slot * header().slot_bytes;
  for (uint32_t i = 0; i < command.run_count; ++i) {
    const v1::RingRun& run = runs[i];
    const auto found = tensors_.find(run.tensor);
    const bool gradient = command.op == v1::RING_OP_GRADIENTS_IN;
    const std::span<std::byte> buffer = found == tensors_.end() ? std::span<std::byte>()
                                        : gradient              ? found->second.gradient
                                                                : found->second.parameter;
    if (run.tensor_offset_bytes + run.length_bytes > buffer.size()) {
      *failed_run = i;
      return v1::RING_RESULT_NO_BUFFER;
    }
    std::byte* mine = buffer.data() + run.tensor_offset_bytes;
    std::byte* theirs = slot + run.slot_offset_bytes;
    const bool out = command.op == v1::RING_OP_PARAMETERS_OUT;
    std::memcpy(out ? mine : theirs, out ? theirs : mine, run.length_bytes);
  }
  return v1::RING_RESULT_OK;
}

void RingClient::Run() {
  while (true) {
    while (header().completed.load(std::memory_order_relaxed) <
           header().issued.load(std::memory_order_acquire)) {
      ExecuteOne();
    }
    pollfd events[2] = {{fds_[2].get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    ::poll(events, 2, -1);
    if ((events[1].revents & POLLIN) != 0) {
      return;
    }
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = ::read(fds_[2].get(), &count, sizeof(count));
  }
}

}  // namespace moment::device
