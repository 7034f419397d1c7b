#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace moment::cli {

// "unix:/run/x" and "unix:///run/x" -> "/run/x"; anything else stays.
std::string WithoutUnixScheme(absl::string_view path);

// Connects to the Unix socket at `path`. Errors say what is the matter with the socket:
//   INVALID_ARGUMENT   longer than the 107 bytes that the system takes
//   UNAVAILABLE        missing, not a socket, refused (nobody listens), no answer within `timeout`
//   PERMISSION_DENIED  the socket, or a directory on the way, is not ours to use
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectUnix(const std::string& path,
                                                           absl::Duration timeout);

// Connects by TCP; UNAVAILABLE if that takes longer than `timeout`.
absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectTcp(const std::string& address,
                                                          absl::Duration timeout);

// The answer to a call that was sent to `peer`.
absl::Status FromGrpc(const grpc::Status& status, absl::string_view peer);

}  // namespace moment::cli
