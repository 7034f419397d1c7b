#include "daemon/session/profile.h"

#include "tests/support/catch.h"

namespace moment::session {
namespace {

TEST_CASE("Profiles: each of the wire's is one of the device's, and back", "[session]") {
  int known = 0;
  for (int number = v1::Profile_MIN; number <= v1::Profile_MAX; ++number) {
    if (!v1::Profile_IsValid(number) || number == v1::PROFILE_UNSPECIFIED) {
      continue;
    }
    const auto profile = static_cast<v1::Profile>(number);
    INFO(v1::Profile_Name(profile));
    const absl::StatusOr<device::Profile> ours = ProfileOf(profile);
    REQUIRE(ours.ok());
    REQUIRE(WireProfile(*ours) == profile);
    ++known;
  }
  REQUIRE(known == 6);
}

TEST_CASE("Profiles: one that is not known is refused, not replaced", "[session]") {
  REQUIRE(ProfileOf(v1::PROFILE_UNSPECIFIED).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(ProfileOf(static_cast<v1::Profile>(77)).status().code() ==
          absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moment::session
