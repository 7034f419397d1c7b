#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace moment::cli {

// The human forms of numbers. JSON never uses them: there it is bytes and seconds.

// "0 B", "999 B", "1.5 KiB", "48.0 MiB".
std::string HumanBytes(uint64_t size_bytes);
// HumanBytes with "/s"; "-" for a rate that is not a number or not positive.
std::string HumanRate(double rate_bytes_per_s);
// "350 ms", "4.2 s", "3m 05s", "2h 07m", "3d 04h"; "-" when not finite or negative.
std::string HumanSeconds(double seconds);
// "999", "12,345", "200,000,000".
std::string HumanCount(uint64_t count);
// "1.2 M": for columns of large counts.
std::string HumanMagnitude(uint64_t count);
// UTC, "2025-03-01 12:00:00"; "-" for 0.
std::string HumanTime(int64_t unix_time_ns);

// Text of others (names, paths, messages) made safe for a terminal: control characters and bytes
// that are not UTF-8 become \xNN. Idempotent except for those.
std::string Printable(absl::string_view text);

// Columns that printable UTF-8 takes; every character counts as one.
uint64_t DisplayWidth(absl::string_view printable);

}  // namespace moment::cli
