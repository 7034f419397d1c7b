#pragma once

#include <sstream>
#include <string>
#include <vector>

#include "daemon/cli/command.h"

namespace moment::cli {

// A console that keeps what is printed, and a whole run of the program in this process.
struct Capture {
  std::ostringstream out;
  std::ostringstream err;
  Console console{.out = out, .err = err};
  Cancellation cancellation;

  int Run(const std::vector<std::string>& arguments) {
    out.str("");
    err.str("");
    Context context{console, cancellation};
    return RunCommandLine(arguments, context);
  }
};

}  // namespace moment::cli
