#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "daemon/cli/console.h"

namespace moment::cli {

// Progress of a long read on `err`: a bar that redraws itself on a terminal, a line every five
// seconds elsewhere. Used by one thread.
class Progress {
 public:
  using Clock = std::function<std::chrono::nanoseconds()>;  // monotonic

  Progress(Console& console, std::string label);
  Progress(Console& console, std::string label, Clock clock);
  ~Progress();  // takes the bar away
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void Update(uint64_t done_bytes, uint64_t total_bytes);

  double elapsed_seconds() const;

 private:
  void Clear();

  Console& console_;
  std::string label_;
  Clock clock_;
  std::chrono::nanoseconds started_;
  std::chrono::nanoseconds shown_;
  bool drawn_ = false;
};

struct ProgressSample {
  uint64_t done_bytes = 0;
  uint64_t total_bytes = 0;
  double elapsed_seconds = 0;
};

// "12.0 MiB of 48.0 MiB (25%), 1.2 GiB/s, 3.0 s left"
std::string ProgressText(const ProgressSample& sample);
// "[=====>    ]" of `width` characters.
std::string ProgressBar(const ProgressSample& sample, uint64_t width);

}  // namespace moment::cli
