#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/memory.h"
#include "daemon/device/device.h"
#include "daemon/device/transport.h"

namespace moment::pipeline {

// A trainer in this process: parameters and gradients in ordinary memory, moved by a thread of its
// own, strictly in the order of the commands.
class MemoryTrainer : public device::Transport {
 public:
  struct Options {
    uint32_t slots = 3;
    uint64_t slot_bytes = uint64_t{1} << 20;
    uint32_t max_runs = 1024;
  };
  using Buffers = std::vector<std::vector<std::byte>>;  // by tensor

  explicit MemoryTrainer(const Options& options);
  ~MemoryTrainer() override;

  // Touched by the caller only while no call of the pipeline is under way.
  Buffers parameters;
  Buffers gradients;
  Buffers segments[device::kSegmentCount];  // what a Read or Write moves
  uint64_t binding = 0;                     // of `segments`: commands of others find no buffer

  // Every command from here on, the waiting ones included, fails as if the trainer were gone;
  // `after` commands more are still done.
  void Break(uint64_t after = 0);
  void Mend();
  // Holds commands back until Release.
  void Hold();
  void Release();
  uint64_t commands() const;
  // Blocks until that many commands were executed, all in all.
  void WaitForCommands(uint64_t count) const;

  uint32_t slot_count() const override { return static_cast<uint32_t>(slots_.size()); }
  uint64_t slot_bytes() const override { return options_.slot_bytes; }
  uint32_t max_runs() const override { return options_.max_runs; }
  std::span<std::byte> slot(uint32_t index) const override { return slots_[index].span(); }
  void Submit(device::TransportCommand* command) override;

 private:
  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return (!commands_.empty() && !held_) || stopping_;
  }
  void Main();
  absl::Status Execute(const device::TransportCommand& command);
  Buffers* BuffersOf(const device::TransportCommand& command, const device::TransportRun& run);

  const Options options_;
  std::vector<base::AlignedBuffer> slots_;
  mutable absl::Mutex mutex_;
  std::deque<device::TransportCommand*> commands_ ABSL_GUARDED_BY(mutex_);
  uint64_t executed_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t left_ ABSL_GUARDED_BY(mutex_) = UINT64_MAX;  // commands until it breaks
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moment::pipeline
