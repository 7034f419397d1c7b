#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace moment::bench {

struct StepBenchOptions {
  std::string device = "host";
  double parameters = 200e6;
  std::string state_directory;  // empty: one of its own below the working directory
  uint32_t warm_up = 3;
  uint32_t steps = 5;
  uint64_t host_memory_bytes = uint64_t{512} << 20;
  uint64_t commit_every = 1;
  std::string engine = "auto";
  uint32_t io_depth = 16;
  bool pins = false;  // each measured step has a pin of the step before it, dropped when it ends
};

struct StepBenchResult {
  uint64_t parameters = 0;
  std::string engine;
  std::string engine_reason;
  bool direct_io = false;
  uint64_t state_bytes = 0;
  uint64_t resident_bytes = 0;
  uint64_t bytes_read = 0;           // of one step
  uint64_t bytes_written = 0;        // of one step
  std::vector<double> step_seconds;  // Step and Flush, back to back
  std::vector<double> raw_seconds;   // the state's bytes read and written
  std::vector<double> serial_step_seconds;
  std::vector<double> pin_seconds;      // of a step that is committed already
  std::vector<double> unpin_seconds;    // until the call returns; what it held goes behind it
  double waiting_for_read_seconds = 0;  // of the last step
  double waiting_for_copy_seconds = 0;
  double waiting_for_adam_seconds = 0;
  double waiting_for_frame_seconds = 0;
  double waiting_for_commit_seconds = 0;
  uint64_t peak_memory_bytes = 0;

  double raw_bytes_per_s() const;
  double ratio_to_raw() const;
  double speedup_over_serial() const;
  std::string Json() const;  // one object
};

// Steps a store of this size, without trainer's compute in between, and measures the limits of the
// same disk between the steps.
absl::StatusOr<StepBenchResult> RunStepBench(const StepBenchOptions& options);

double Median(std::vector<double> values);

}  // namespace moment::bench
