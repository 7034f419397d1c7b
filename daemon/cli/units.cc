#include "daemon/cli/units.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "daemon/cli/utf8.h"

namespace moment::cli {
namespace {

// C0, DEL, and C1 in its UTF-8 form: what a terminal would obey.
bool IsControl(absl::string_view character) {
  const uint8_t first = static_cast<uint8_t>(character[0]);
  if (character.size() == 1) {
    return first < 0x20 || first == 0x7f;
  }
  return first == 0xc2 && static_cast<uint8_t>(character[1]) < 0xa0;
}

void AppendEscaped(absl::string_view bytes, std::string& text) {
  for (const char byte : bytes) {
    absl::StrAppendFormat(&text, "\\x%02x", static_cast<unsigned>(static_cast<uint8_t>(byte)));
  }
}

}  // namespace

std::string HumanBytes(uint64_t size_bytes) {
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (size_bytes < 1024) {
    return absl::StrCat(size_bytes, " B");
  }
  double value = static_cast<double>(size_bytes) / 1024;
  uint64_t unit = 0;
  // 1023.95 would be shown as "1024.0".
  while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string HumanRate(double rate_bytes_per_s) {
  if (!std::isfinite(rate_bytes_per_s) || rate_bytes_per_s <= 0) {
    return "-";
  }
  return absl::StrCat(HumanBytes(static_cast<uint64_t>(rate_bytes_per_s)), "/s");
}

std::string HumanSeconds(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e12) {
    return "-";
  }
  if (seconds < 0.9995) {
    return absl::StrFormat("%.0f ms", seconds * 1000);
  }
  if (seconds < 59.95) {
    return absl::StrFormat("%.1f s", seconds);
  }
  const uint64_t whole = static_cast<uint64_t>(std::llround(seconds));
  const uint64_t minutes = whole / 60;
  if (minutes < 60) {
    return absl::StrFormat("%um %02us", minutes, whole % 60);
  }
  const uint64_t hours = minutes / 60;
  if (hours < 24) {
    return absl::StrFormat("%uh %02um", hours, minutes % 60);
  }
  return absl::StrFormat("%ud %02uh", hours / 24, hours % 24);
}

std::string HumanCount(uint64_t count) {
  const std::string digits = absl::StrCat(count);
  std::string result;
  for (uint64_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) {
      result += ',';
    }
    result += digits[i];
  }
  return result;
}

std::string HumanMagnitude(uint64_t count) {
  static constexpr const char* kUnits[] = {"k", "M", "G", "T", "P", "E"};
  if (count < 1000) {
    return absl::StrCat(count);
  }
  double value = static_cast<double>(count) / 1000;
  uint64_t unit = 0;
  while (value >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string HumanTime(int64_t unix_time_ns) {
  if (unix_time_ns == 0) {
    return "-";
  }
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixNanos(unix_time_ns),
                          absl::UTCTimeZone());
}

std::string Printable(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const uint64_t length = Utf8Length(text);
    const absl::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (length == 0 || IsControl(character)) {
      AppendEscaped(character, result);
    } else {
      absl::StrAppend(&result, character);
    }
    text.remove_prefix(character.size());
  }
  return result;
}

uint64_t DisplayWidth(absl::string_view printable) {
  uint64_t width = 0;
  while (!printable.empty()) {
    const uint64_t length = Utf8Length(printable);
    printable.remove_prefix(length == 0 ? 1 : length);
    ++width;
  }
  return width;
}

}  // namespace moment::cli
