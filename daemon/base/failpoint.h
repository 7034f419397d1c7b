#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace moment::base {

// Named points at which a test, or MOMENTD_FAILPOINTS of the environment, makes the process fail:
//   MOMENTD_FAILPOINTS="store.before_record=kill@3,io.write=error@1"
// Actions: kill (SIGKILL to itself), exit, error (INTERNAL), sleep:<ms>. @n: at the nth arrival (1
// is the first); without it, at each. A point that nobody armed costs one relaxed atomic load.
absl::Status Failpoint(absl::string_view name);

// INVALID_ARGUMENT for a specification that does not parse. Replaces what was armed.
absl::Status ArmFailpoints(absl::string_view specification);

}  // namespace moment::base
