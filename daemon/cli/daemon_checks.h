#pragma once

#include "daemon/cli/doctor_check.h"
#include "moment/v1/admin.pb.h"

namespace moment::cli {

// What a daemon says of itself: whether it serves, and everything that is degraded.
Checks JudgeStatus(const v1::StatusResponse& status);

}  // namespace moment::cli
