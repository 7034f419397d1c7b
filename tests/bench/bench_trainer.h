#pragma once

#include <deque>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/memory.h"
#include "daemon/device/transport.h"

namespace moment::bench {

// A trainer in this process that moves as many bytes as a real one, from and to one block of memory
// larger than the caches: its own size does not grow with the model.
class BenchTrainer : public device::Transport {
 public:
  BenchTrainer(uint32_t slots, uint64_t slot_bytes);
  ~BenchTrainer() override;

  uint32_t slot_count() const override { return static_cast<uint32_t>(slots_.size()); }
  uint64_t slot_bytes() const override { return slots_.front().size(); }
  uint32_t max_runs() const override { return 4096; }
  std::span<std::byte> slot(uint32_t index) const override { return slots_[index].span(); }
  void Submit(device::TransportCommand* command) override;

  // As the gradients of any run of elements; at least this many bytes.
  std::span<const std::byte> gradients() const { return gradients_.span(); }
  std::span<std::byte> parameters() const { return parameters_.span(); }

 private:
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return !commands_.empty() || stopping_;
  }
  void Main();
  void Execute(const device::TransportCommand& command);

  std::vector<base::AlignedBuffer> slots_;
  base::AlignedBuffer gradients_;
  base::AlignedBuffer parameters_;
  absl::Mutex mutex_;
  std::deque<device::TransportCommand*> commands_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moment::bench
