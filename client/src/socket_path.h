#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace moment::client {

// The kernel's limit: sockaddr_un::sun_path less the NUL.
inline constexpr size_t kMaxSocketPathBytes = 107;

// Path of the daemon's socket: `argument`, else $MOMENTD_SOCKET, else /run/momentd/momentd.sock.
// "unix:" and "unix://" are taken off. INVALID_ARGUMENT naming the path if it is too long or has
// another scheme.
absl::StatusOr<std::string> ResolveSocketPath(absl::string_view argument);

// FAILED_PRECONDITION if something other than a socket is at `path`. A missing file is fine: a
// daemon may be about to start.
absl::Status CheckSocketFile(const std::string& path);

// fd.sock, beside the daemon's socket.
std::string DescriptorSocketPath(const std::string& socket_path);

}  // namespace moment::client
