#include "daemon/cli/exit_code.h"

namespace moment::cli {

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kFine;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kUsage;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnreachable;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kDataLoss:
      return ExitCode::kCorruption;
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAborted:
      return ExitCode::kConflict;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kNoResources;
    default:
      return ExitCode::kFailed;
  }
}

}  // namespace moment::cli
