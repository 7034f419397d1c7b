#pragma once

#include <string>

namespace moment {

// Sets up the process's logger on the standard error stream. `format`: "text" (key=value fields;
// under systemd the journal's priority instead of a time) or "json" (an object a line).
void SetUpLog(const std::string& level, const std::string& format);

void SetLogLevel(const std::string& level);

}  // namespace moment
