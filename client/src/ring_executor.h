#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "client/src/descriptor_door.h"
#include "client/src/gpu_copier.h"
#include "client/src/tensor_table.h"
#include "proto/moment/v1/ring.h"

namespace moment::client {

// A shared mapping of a whole memfd.
class Mapping {
 public:
  static absl::StatusOr<Mapping> Of(const UniqueFd& fd, const char* what);
  Mapping() = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  std::byte* data() const { return data_; }
  uint64_t length_bytes() const { return length_bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t length_bytes_ = 0;
};

// Executes the daemon's ring commands (ring.h) strictly in order on a thread of its own: copies
// between slots and the trainer's buffers. Whatever the control page says, no byte outside the
// table's buffers and the slots is touched. The table outlives it.
class RingExecutor {
 public:
  static absl::StatusOr<std::unique_ptr<RingExecutor>> Start(RingDescriptors descriptors,
                                                             TensorTable* table);
  ~RingExecutor();  // stops the thread, after the command it is at

  // Commands executed so far that wrote parameters. Any thread.
  uint64_t parameter_writes() const { return parameter_writes_.load(std::memory_order_acquire); }

 private:
  explicit RingExecutor(TensorTable* table) : table_(table) {}

  absl::Status Map(RingDescriptors descriptors);
  void Loop();
  void ExecuteIssued();
  // A command that was started and not yet acknowledged.
  struct InWork {
    v1::RingCommand command = {};
    v1::RingResult result = v1::RING_RESULT_BAD_COMMAND;
    uint32_t failed_run = MOMENT_RING_NO_RUN;
  };

  InWork Begin(uint64_t number);
  void Complete(InWork& work);
  v1::RingResult Execute(const v1::RingCommand& command, const v1::RingRun* runs,
                         uint32_t* failed_run);
  Buffer Find(const v1::RingCommand& command, const v1::RingRun& run) const;
  v1::RingResult Copy(const v1::RingCommand& command, const v1::RingRun& run);

  TensorTable* const table_;
  RingDescriptors descriptors_;
  UniqueFd stop_;
  Mapping control_;
  Mapping slots_;
  v1::RingHeader* header_ = nullptr;
  v1::RingCommand* commands_ = nullptr;
  v1::RingRun* runs_ = nullptr;
  // Read once from the control page at the start; what the page says later is not asked again.
  uint32_t slot_count_ = 0;
  uint64_t slot_bytes_ = 0;
  uint32_t max_runs_ = 0;
  uint64_t completed_ = 0;
  std::vector<InWork> in_work_;  // by number of the command, modulo the slots
  GpuCopier gpu_;                // ends before the slots that it pins
  std::atomic<uint64_t> parameter_writes_{0};
  std::thread thread_;
};

}  // namespace moment::client
