#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "moment/v1/types.pb.h"

namespace moment::pipeline {

// What the head of a pass waits for.
enum class WaitFor : uint8_t { kRead, kCopy, kAdam, kFrame, kCommit };
inline constexpr int kWaitReasons = 5;

// Attributes the seconds of a pass, one after the other, to what it waits for.
class WaitClock {
 public:
  using Clock = std::chrono::steady_clock;

  void Start() {
    seconds_ = {};
    started_ = Clock::now();
    last_ = started_;
  }
  // The time since the last call went to the reason given then.
  void Note(WaitFor reason) {
    const Clock::time_point now = Clock::now();
    seconds_[static_cast<size_t>(reason_)] += Seconds(now - last_);
    last_ = now;
    reason_ = reason;
  }
  void Report(v1::StepStatistics& statistics) {
    Note(reason_);
    auto of = [this](WaitFor reason) { return seconds_[static_cast<size_t>(reason)]; };
    statistics.set_total_seconds(Seconds(last_ - started_));
    statistics.set_waiting_for_read_seconds(of(WaitFor::kRead));
    statistics.set_waiting_for_copy_seconds(of(WaitFor::kCopy));
    statistics.set_waiting_for_adam_seconds(of(WaitFor::kAdam));
    statistics.set_waiting_for_frame_seconds(of(WaitFor::kFrame));
    statistics.set_waiting_for_commit_seconds(of(WaitFor::kCommit));
  }

 private:
  static double Seconds(Clock::duration duration) {
    return std::chrono::duration<double>(duration).count();
  }

  std::array<double, kWaitReasons> seconds_ = {};
  Clock::time_point started_;
  Clock::time_point last_;
  WaitFor reason_ = WaitFor::kRead;
};

}  // namespace moment::pipeline
