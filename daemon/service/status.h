#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace moment::service {

// The one place where a Status becomes a gRPC status: the codes are the same numbers.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace moment::service
