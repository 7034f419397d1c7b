#include "tests/bench/bench_trainer.h"

#include <algorithm>
#include <cstring>

namespace moment::bench {
namespace {

constexpr uint64_t kBlockBytes = uint64_t{64} << 20;

// Small values of both signs, never NaN: fp32 with exponents around 2^-10.
void FillWithValues(std::span<std::byte> bytes) {
  uint64_t state = 1;
  for (size_t i = 0; i + 4 <= bytes.size(); i += 4) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<uint32_t>(state >> 32);
    const uint32_t value =
        (bits & 0x80000000u) | (117u + (bits >> 23 & 3u)) << 23 | (bits & 0x7fffffu);
    std::memcpy(bytes.data() + i, &value, sizeof(value));
  }
}

}  // namespace

BenchTrainer::BenchTrainer(uint32_t slots, uint64_t slot_bytes)
    : gradients_(*base::AlignedBuffer::Allocate(kBlockBytes)),
      parameters_(*base::AlignedBuffer::Allocate(kBlockBytes)) {
  FillWithValues(gradients_.span());
  FillWithValues(parameters_.span());
  for (uint32_t i = 0; i < slots; ++i) {
    slots_.push_back(*base::AlignedBuffer::Allocate(slot_bytes));
  }
  thread_ = std::thread([this] { Main(); });
}

BenchTrainer::~BenchTrainer() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void BenchTrainer::Submit(device::TransportCommand* command) {
  absl::MutexLock lock(&mutex_);
  commands_.push_back(command);
}

void BenchTrainer::Main() {
  for (;;) {
    device::TransportCommand* command = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &BenchTrainer::HasWork));
      if (commands_.empty()) {
        return;
      }
      command = commands_.front();
      commands_.pop_front();
    }
    Execute(*command);
    command->done(command, absl::OkStatus());
  }
}

void BenchTrainer::Execute(const device::TransportCommand& command) {
  const bool out = command.op == device::TransportOp::kParametersOut;
  const auto block =
      command.op == device::TransportOp::kGradientsIn ? gradients_.span() : parameters_.span();
  for (const device::TransportRun& run : command.runs) {
    std::byte* in_slot = slots_[command.slot].data() + run.slot_offset_bytes;
    for (uint64_t moved = 0; moved < run.length_bytes;) {
      const uint64_t at = (run.tensor_offset_bytes + moved) % block.size();
      const uint64_t bytes = std::min(run.length_bytes - moved, block.size() - at);
      std::memcpy(out ? block.data() + at : in_slot + moved,
                  out ? in_slot + moved : block.data() + at, bytes);
      moved += bytes;
    }
  }
}

}  // namespace moment::bench
