#pragma once

#include "absl/strings/string_view.h"

namespace moment {

// Tells the service manager, if NOTIFY_SOCKET names one: "READY=1", "STOPPING=1". A failure is
// logged and changes nothing.
void NotifySystem(absl::string_view state);

}  // namespace moment
