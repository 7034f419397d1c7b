#include "daemon/cli/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "daemon/cli/units.h"

namespace moment::cli {
namespace {

absl::string_view EnvironmentOf(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? absl::string_view() : absl::string_view(value);
}

uint64_t ColumnsOf(int fd) {
  winsize size = {};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

const char* CodeOf(Colour colour) {
  switch (colour) {
    case Colour::kNone:
      return "";
    case Colour::kGreen:
      return "32";
    case Colour::kYellow:
      return "33";
    case Colour::kRed:
      return "31";
    case Colour::kBold:
      return "1";
  }
  return "";
}

}  // namespace

Console ProcessConsole() {
  const bool out_is_terminal = ::isatty(STDOUT_FILENO) == 1;
  const bool plain = !EnvironmentOf("NO_COLOR").empty() || EnvironmentOf("TERM") == "dumb";
  return Console{.out = std::cout,
                 .err = std::cerr,
                 .out_is_terminal = out_is_terminal,
                 .err_is_terminal = ::isatty(STDERR_FILENO) == 1,
                 .colour = out_is_terminal && !plain,
                 .terminal_columns = ColumnsOf(STDERR_FILENO)};
}

std::string Paint(const Console& console, Colour colour, absl::string_view text) {
  if (!console.colour || colour == Colour::kNone) {
    return std::string(text);
  }
  return absl::StrCat("\x1b[", CodeOf(colour), "m", text, "\x1b[0m");
}

void Note(Console& console, absl::string_view message) {
  console.err << absl::StrCat("momentctl: ", Printable(message), "\n") << std::flush;
}

absl::Status Finish(Console& console) {
  console.out.flush();
  if (!console.out.good()) {
    return absl::InternalError("writing the results failed: they are incomplete");
  }
  return absl::OkStatus();
}

}  // namespace moment::cli
