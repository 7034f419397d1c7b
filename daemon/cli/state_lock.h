#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/base/fd.h"

namespace moment::cli {

// The lock of a state directory as a reader meets it.
struct StateLock {
  // Held shared until it is closed: no daemon starts to write meanwhile. Not valid if a daemon
  // holds it.
  base::UniqueFd shared;
  uint32_t holder_pid = 0;              // 0: unknown
  std::string holder_socket_directory;  // "": unknown
};

// Never waits. NOT_FOUND if the directory has no LOCK.
absl::StatusOr<StateLock> TryLockShared(const std::string& state_directory);

}  // namespace moment::cli
