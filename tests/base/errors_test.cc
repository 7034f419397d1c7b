#include "daemon/base/errors.h"

#include <cerrno>

#include "tests/support/catch.h"

namespace moment::base {
namespace {

TEST_CASE("ErrnoStatus: names what, which object and the system's text", "[base]") {
  const absl::Status status = ErrnoStatus(ENOSPC, "write", "/state/file");
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
  CHECK(status.message() == "write /state/file: No space left on device");
}

TEST_CASE("WithContext: keeps the code and puts the context first", "[base]") {
  const absl::Status status = WithContext(ErrnoStatus(EIO, "read", "f"), "store a/b");
  CHECK(status.code() == absl::StatusCode::kInternal);
  CHECK(status.message() == "store a/b: read f: Input/output error");
  CHECK(WithContext(absl::OkStatus(), "x").ok());
}

}  // namespace
}  // namespace moment::base
