#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace moment::cli {

enum class Colour : uint8_t { kNone, kGreen, kYellow, kRed, kBold };

// Where a command writes: results on `out`, everything else on `err`. Used by one thread.
struct Console {
  std::ostream& out;
  std::ostream& err;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool colour = false;             // of `out`
  uint64_t terminal_columns = 80;  // of `err`
};

// The process's streams. Colour only on a terminal, with NO_COLOR unset or empty and TERM not
// "dumb".
Console ProcessConsole();

// `text` in this colour, or as it is where the console shows none.
std::string Paint(const Console& console, Colour colour, absl::string_view text);

// One line on `err`: "momentctl: <message>", made printable.
void Note(Console& console, absl::string_view message);

// Flushes `out`; INTERNAL if what was printed did not all arrive (a full disk behind a redirect).
absl::Status Finish(Console& console);

}  // namespace moment::cli
