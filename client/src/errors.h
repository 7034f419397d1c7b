#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace moment::client {

// A reply of the daemon (or of gRPC itself) as a Status: codes and sentence are kept.
absl::Status FromGrpc(const grpc::Status& status);

// "what object: system text", coded by the kind of error.
absl::Status FromErrno(int error, absl::string_view what, absl::string_view object);

// The daemon answered: what the call asked for happened, or did not. Otherwise nobody knows.
bool OutcomeKnown(const absl::Status& status);

absl::Status WithContext(const absl::Status& status, absl::string_view context);

// The store stands behind the last answered step; carried as a payload of a FAILED_PRECONDITION.
absl::Status RewoundError(absl::string_view message);
bool IsRewound(const absl::Status& status);

// This process was forked from the one that opened the store.
absl::Status ForkedError();
bool IsForked(const absl::Status& status);

}  // namespace moment::client

#define MOMENT_CLIENT_RETURN_IF_ERROR(expression)                           \
  do {                                                                      \
    if (absl::Status moment_status_ = (expression); !moment_status_.ok()) { \
      return moment_status_;                                                \
    }                                                                       \
  } while (false)
