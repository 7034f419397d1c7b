#include "tests/pipeline/memory_trainer.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace moment::pipeline {

MemoryTrainer::MemoryTrainer(const Options& options) : options_(options) {
  for (uint32_t i = 0; i < options.slots; ++i) {
    slots_.push_back(*base::AlignedBuffer::Allocate(options.slot_bytes));
  }
  thread_ = std::thread([this] { Main(); });
}

MemoryTrainer::~MemoryTrainer() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void MemoryTrainer::Break(uint64_t after) {
  absl::MutexLock lock(&mutex_);
  left_ = after;
  held_ = false;
}

void MemoryTrainer::Mend() {
  absl::MutexLock lock(&mutex_);
  left_ = UINT64_MAX;
}

void MemoryTrainer::Hold() {
  absl::MutexLock lock(&mutex_);
  held_ = true;
}

void MemoryTrainer::Release() {
  absl::MutexLock lock(&mutex_);
  held_ = false;
}

uint64_t MemoryTrainer::commands() const {
  absl::MutexLock lock(&mutex_);
  return executed_;
}

void MemoryTrainer::WaitForCommands(uint64_t count) const {
  absl::MutexLock lock(&mutex_);
  auto reached = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return executed_ >= count; };
  mutex_.Await(absl::Condition(&reached));
}

void MemoryTrainer::Submit(device::TransportCommand* command) {
  absl::MutexLock lock(&mutex_);
  commands_.push_back(command);
}

void MemoryTrainer::Main() {
  for (;;) {
    device::TransportCommand* command = nullptr;
    bool broken = false;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &MemoryTrainer::HasWork));
      if (commands_.empty()) {
        return;
      }
      command = commands_.front();
      commands_.pop_front();
      ++executed_;
      broken = left_ == 0;
      left_ -= left_ == 0 || left_ == UINT64_MAX ? 0 : 1;
    }
    absl::Status status = broken ? absl::AbortedError("the trainer is gone") : Execute(*command);
    command->done(command, std::move(status));
  }
}

absl::Status MemoryTrainer::Execute(const device::TransportCommand& command) {
  if (command.runs.size() > options_.max_runs || command.slot >= slots_.size()) {
    return absl::InvalidArgumentError("a command beyond the transport's limits");
  }
  for (const device::TransportRun& run : command.runs) {
    Buffers* found = BuffersOf(command, run);
    if (found == nullptr) {
      return absl::InvalidArgumentError("segments of another binding");
    }
    Buffers& buffers = *found;
    if (run.tensor >= buffers.size() ||
        run.tensor_offset_bytes + run.length_bytes > buffers[run.tensor].size()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", run.tensor, " has no such buffer"));
    }
    if (run.slot_offset_bytes + run.length_bytes > options_.slot_bytes) {
      return absl::InvalidArgumentError("a run beyond its slot");
    }
    std::byte* tensor = buffers[run.tensor].data() + run.tensor_offset_bytes;
    std::byte* in_slot = slots_[command.slot].data() + run.slot_offset_bytes;
    const bool out = command.op == device::TransportOp::kParametersOut ||
                     command.op == device::TransportOp::kSegmentsOut;
    std::memcpy(out ? tensor : in_slot, out ? in_slot : tensor, run.length_bytes);
  }
  return absl::OkStatus();
}

MemoryTrainer::Buffers* MemoryTrainer::BuffersOf(const device::TransportCommand& command,
                                                 const device::TransportRun& run) {
  switch (command.op) {
    case device::TransportOp::kGradientsIn:
      return &gradients;
    case device::TransportOp::kParametersIn:
    case device::TransportOp::kParametersOut:
      return &parameters;
    case device::TransportOp::kSegmentsIn:
    case device::TransportOp::kSegmentsOut:
      return command.binding == binding && run.segment < device::kSegmentCount
                 ? &segments[run.segment]
                 : nullptr;
  }
  return nullptr;
}

}  // namespace moment::pipeline
