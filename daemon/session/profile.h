#pragma once

#include "absl/status/statusor.h"
#include "daemon/device/types.h"
#include "moment/v1/types.pb.h"

namespace moment::session {

// A profile of the wire and of layouts as the device's. INVALID_ARGUMENT for one that this version
// does not know, and for PROFILE_UNSPECIFIED: which arithmetic runs is never guessed.
absl::StatusOr<device::Profile> ProfileOf(v1::Profile profile);

v1::Profile WireProfile(device::Profile profile);

}  // namespace moment::session
