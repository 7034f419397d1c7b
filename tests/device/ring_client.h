#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "daemon/base/fd.h"
#include "proto/moment/v1/ring.h"

namespace moment::device {

// The other side of a ring, written against proto/moment/v1/ring.h alone: a trainer for tests. Its
// thread executes commands strictly in order.
class RingClient {
 public:
  struct Tensor {
    std::span<std::byte> gradient;
    std::span<std::byte> parameter;
  };

  // Duplicates the descriptors. Executes by itself if `run`, else on Execute alone.
  RingClient(const std::array<int, 4>& descriptors, bool run);
  ~RingClient();
  RingClient(const RingClient&) = delete;
  RingClient& operator=(const RingClient&) = delete;

  // The tensor's buffers, for commands executed from here on.
  void SetTensor(uint32_t index, Tensor tensor);
  // Before reading buffers that a command wrote: a thread checker sees no order in memory that is
  // mapped twice.
  void WaitForIdle();

  v1::RingHeader& header() { return *reinterpret_cast<v1::RingHeader*>(control_); }
  v1::RingCommand& command(uint64_t entry);
  v1::RingRun* runs(uint64_t entry);
  int control_fd() const { return fds_[0].get(); }
  int slots_fd() const { return fds_[1].get(); }

  // Waits until `issued` commands are there, by the eventfd.
  void WaitForIssued(uint64_t issued);
  // Executes the oldest command and acknowledges it; its ticket. One must have been issued.
  uint64_t ExecuteOne();
  // Raises the daemon's eventfd.
  void Signal();

 private:
  void Run();
  uint32_t Execute(const v1::RingCommand& command, const v1::RingRun* runs, uint32_t* failed_run);

  std::array<base::UniqueFd, 4> fds_;
  base::UniqueFd stop_;
  std::byte* control_ = nullptr;
  std::byte* slots_ = nullptr;
  uint64_t control_bytes_ = 0;
  uint64_t slots_bytes_ = 0;
  std::thread thread_;
  absl::Mutex mutex_;  // held while executing
  std::map<uint32_t, Tensor> tensors_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moment::device
