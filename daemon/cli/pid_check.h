#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "daemon/cli/doctor_check.h"

namespace moment::cli {

// Process numbers as they matter to legacy IPC handles: the driver takes a trainer with the
// daemon's number for the daemon itself, although they are in two PID namespaces.
struct PidFacts {
  bool in_own_namespace = false;  // this process is not in the machine's first PID namespace
  pid_t own = 0;
  std::optional<pid_t> daemon;          // as the daemon knows itself; absent: no daemon was asked
  std::optional<pid_t> daemon_from_us;  // as this process sees it; 0: not at all
};

Check JudgePids(const PidFacts& facts);

// Of this process.
PidFacts OwnPidFacts();

// The number of who listens at a Unix socket, as this process sees it; 0 if it does not.
std::optional<pid_t> ListenerPid(const std::string& socket_path);

}  // namespace moment::cli
