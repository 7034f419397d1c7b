#include "daemon/cli/exit_code.h"

#include "tests/support/catch.h"

namespace moment::cli {
namespace {

TEST_CASE("ExitCodeOf: one code for each kind of error", "[cli]") {
  CHECK(ExitCodeOf(absl::OkStatus()) == ExitCode::kFine);
  CHECK(ExitCodeOf(absl::InternalError("")) == ExitCode::kFailed);
  CHECK(ExitCodeOf(absl::PermissionDeniedError("")) == ExitCode::kFailed);
  CHECK(ExitCodeOf(absl::UnimplementedError("")) == ExitCode::kFailed);
  CHECK(ExitCodeOf(absl::InvalidArgumentError("")) == ExitCode::kUsage);
  CHECK(ExitCodeOf(absl::UnavailableError("")) == ExitCode::kUnreachable);
  CHECK(ExitCodeOf(absl::DeadlineExceededError("")) == ExitCode::kUnreachable);
  CHECK(ExitCodeOf(absl::NotFoundError("")) == ExitCode::kNotFound);
  CHECK(ExitCodeOf(absl::DataLossError("")) == ExitCode::kCorruption);
  CHECK(ExitCodeOf(absl::FailedPreconditionError("")) == ExitCode::kConflict);
  CHECK(ExitCodeOf(absl::AlreadyExistsError("")) == ExitCode::kConflict);
  CHECK(ExitCodeOf(absl::AbortedError("")) == ExitCode::kConflict);
  CHECK(ExitCodeOf(absl::ResourceExhaustedError("")) == ExitCode::kNoResources);
}

}  // namespace
}  // namespace moment::cli
