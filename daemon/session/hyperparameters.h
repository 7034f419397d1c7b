#pragma once

#include "absl/status/statusor.h"
#include "daemon/device/types.h"
#include "moment/v1/types.pb.h"

namespace moment::session {

// Checks one group's hyperparameters: INVALID_ARGUMENT naming the group and the field for NaN, Inf
// and what is out of range (as torch's constructors have it), and for a mode that is not set.
absl::StatusOr<device::Hyperparameters> CheckHyperparameters(const v1::Hyperparameters& wire,
                                                             int group);

}  // namespace moment::session
