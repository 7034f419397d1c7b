#pragma once

#include <sys/types.h>

#include <memory>
#include <vector>

#include "daemon/base/fd.h"

namespace moment::session {

// A process at the other end of a socket.
struct Peer {
  pid_t pid = 0;  // 0: outside our PID namespace
  uid_t uid = 0;
  std::vector<gid_t> groups;              // all of them
  std::shared_ptr<base::UniqueFd> pidfd;  // null where the kernel gives none
};

}  // namespace moment::session
