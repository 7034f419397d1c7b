#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

namespace moment::io {

// Nanoseconds of the monotonic clock; never 0.
inline uint64_t NowNs() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

// When each transfer in flight was submitted, and the first of those that wait behind them. One
// thread at a time writes a slot (0: free); any thread reads, without a lock. Transfers leave the
// waiting line in order, so the oldest is in flight if any is.
class TransferAges {
 public:
  explicit TransferAges(uint32_t slots) : in_flight_(slots) {}

  void SetInFlight(uint32_t slot, uint64_t submitted_ns) {
    in_flight_[slot].store(submitted_ns, std::memory_order_relaxed);
  }
  void SetFirstWaiting(uint64_t submitted_ns) {
    first_waiting_.store(submitted_ns, std::memory_order_relaxed);
  }

  // By a submitting thread, before the one that moves knows of the transfer.
  void SetFirstWaitingIfNone(uint64_t submitted_ns) {
    uint64_t none = 0;
    first_waiting_.compare_exchange_strong(none, submitted_ns, std::memory_order_relaxed);
  }

  uint64_t OldestNs() const {
    uint64_t oldest = first_waiting_.load(std::memory_order_relaxed);
    for (const std::atomic<uint64_t>& slot : in_flight_) {
      const uint64_t submitted = slot.load(std::memory_order_relaxed);
      if (submitted != 0 && (oldest == 0 || submitted < oldest)) {
        oldest = submitted;
      }
    }
    const uint64_t current = NowNs();
    return oldest == 0 || oldest > current ? 0 : current - oldest;
  }

 private:
  std::vector<std::atomic<uint64_t>> in_flight_;
  std::atomic<uint64_t> first_waiting_{0};
};

}  // namespace moment::io
