#include "daemon/base/failpoint.h"

#include "tests/support/catch.h"

namespace moment::base {
namespace {

TEST_CASE("Failpoint: an armed point fails at the named arrival only", "[base]") {
  REQUIRE(ArmFailpoints("here=error@2").ok());
  CHECK(Failpoint("here").ok());
  CHECK(!Failpoint("here").ok());
  CHECK(Failpoint("here").ok());
  CHECK(Failpoint("elsewhere").ok());
  REQUIRE(ArmFailpoints("").ok());
}

TEST_CASE("Failpoint: a specification that does not parse is refused", "[base]") {
  CHECK(!ArmFailpoints("here").ok());
  CHECK(!ArmFailpoints("here=explode").ok());
  CHECK(!ArmFailpoints("here=kill@x").ok());
}

}  // namespace
}  // namespace moment::base
