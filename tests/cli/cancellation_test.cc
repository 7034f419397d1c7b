#include "daemon/cli/cancellation.h"

#include "tests/support/catch.h"

namespace moment::cli {
namespace {

TEST_CASE("Cancellation: calls back while the scope lives, and never after", "[cli]") {
  Cancellation cancellation;
  int calls = 0;
  {
    const Cancellation::Scope scope(cancellation, [&] { ++calls; });
    CHECK_FALSE(cancellation.cancelled());
    cancellation.Cancel();
  }
  cancellation.Cancel();
  CHECK(calls == 1);
  CHECK(cancellation.cancelled());
}

TEST_CASE("Cancellation: a scope made after the wish is called at once", "[cli]") {
  Cancellation cancellation;
  cancellation.Cancel();
  int calls = 0;
  const Cancellation::Scope scope(cancellation, [&] { ++calls; });
  CHECK(calls == 1);
}

TEST_CASE("Cancellation: waits until it is wished for, or for the time given", "[cli]") {
  Cancellation cancellation;
  CHECK_FALSE(cancellation.AwaitFor(absl::Milliseconds(1)));
  cancellation.Cancel();
  CHECK(cancellation.AwaitFor(absl::InfiniteDuration()));
}

}  // namespace
}  // namespace moment::cli
