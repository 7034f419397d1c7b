#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace moment::base {

// A value for a key=value log line: in quotes, with quotes, line ends and control characters
// escaped, so that no name a client chose can forge a field or a line.
std::string Quoted(absl::string_view text);

}  // namespace moment::base
