#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace moment::cli {

// What the shell sees. Scripts depend on these values: they never change their meaning.
enum class ExitCode : uint8_t {
  kFine = 0,
  kFailed = 1,
  kUsage = 2,        // usage or configuration
  kUnreachable = 3,  // no daemon answers
  kNotFound = 4,
  kCorruption = 5,
  kConflict = 6,
  kNoResources = 7,  // out of space or other resources
};

// One operator action a code: see docs/reference/cli.md.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace moment::cli
