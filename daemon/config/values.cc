#include "daemon/config/values.h"

#include <arpa/inet.h>

#include <array>
#include <cmath>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace moment::config {
namespace {

absl::Status Unexpected(absl::string_view text, absl::string_view form) {
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not ", form));
}

struct Unit {
  const char* suffix;
  double factor;
};

// The number before a unit, times the unit; negative if it is not a number with one of the units.
template <size_t N>
double Scaled(absl::string_view text, const std::array<Unit, N>& units) {
  const size_t end = text.find_first_not_of("0123456789.");
  double number = 0;
  if (end == 0 || !absl::SimpleAtod(text.substr(0, end), &number)) {
    return -1;
  }
  const absl::string_view suffix =
      end == absl::string_view::npos ? "" : absl::StripAsciiWhitespace(text.substr(end));
  for (const Unit& unit : units) {
    if (suffix == unit.suffix) {
      return number * unit.factor;
    }
  }
  return -1;
}

constexpr std::array<Unit, 10> kByteUnits = {{{"", 1},
                                              {"B", 1},
                                              {"KiB", 1024.0},
                                              {"MiB", 1048576.0},
                                              {"GiB", 1073741824.0},
                                              {"TiB", 1099511627776.0},
                                              {"KB", 1e3},
                                              {"MB", 1e6},
                                              {"GB", 1e9},
                                              {"TB", 1e12}}};
constexpr std::array<Unit, 4> kDurationUnits = {
    {{"ms", 1}, {"s", 1000.0}, {"m", 60000.0}, {"h", 3600000.0}}};

bool IsNumericAddress(const std::string& host) {
  unsigned char buffer[sizeof(in6_addr)];
  return ::inet_pton(AF_INET, host.c_str(), buffer) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), buffer) == 1;
}

}  // namespace

absl::StatusOr<bool> ParseBool(absl::string_view text) {
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "true" || lower == "yes" || lower == "on" || lower == "1") {
    return true;
  }
  if (lower == "false" || lower == "no" || lower == "off" || lower == "0") {
    return false;
  }
  return Unexpected(text, "true or false");
}

absl::StatusOr<uint64_t> ParseCount(absl::string_view text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  if (!absl::SimpleAtoi(text, &value) || value < least || value > most) {
    return Unexpected(text, absl::StrCat("a number from ", least, " to ", most));
  }
  return value;
}

absl::StatusOr<uint64_t> ParseBytes(absl::string_view text) {
  const double bytes = Scaled(text, kByteUnits);
  if (bytes < 0 || bytes > 9e18) {
    return Unexpected(text, "a size such as 4096, 64KiB, 1.5GiB or 2TB");
  }
  return static_cast<uint64_t>(bytes);
}

absl::StatusOr<std::chrono::milliseconds> ParseDuration(absl::string_view text) {
  const double milliseconds = Scaled(text, kDurationUnits);
  if (milliseconds < 0 || milliseconds > 1e12) {
    return Unexpected(text, "a duration such as 500ms, 30s, 5m or 1h");
  }
  return std::chrono::milliseconds(static_cast<int64_t>(std::llround(milliseconds)));
}

absl::StatusOr<uint32_t> ParseMode(absl::string_view text) {
  uint32_t mode = 0;
  const bool octal = !text.empty() && text.size() <= 4 &&
                     text.find_first_not_of("01234567") == absl::string_view::npos;
  for (const char c : text) {
    mode = mode * 8 + static_cast<uint32_t>(c - '0');
  }
  if (!octal || mode > 0777) {
    return Unexpected(text, "octal permission bits such as 0750");
  }
  return mode;
}

absl::StatusOr<std::string> ParseListenAddress(absl::string_view text) {
  if (text.empty()) {
    return std::string();
  }
  const size_t colon = text.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port > 65535) {
    return Unexpected(text, "an address and port such as 127.0.0.1:9090");
  }
  absl::string_view host = text.substr(0, colon);
  if (absl::ConsumePrefix(&host, "[") && !absl::ConsumeSuffix(&host, "]")) {
    return Unexpected(text, "an address and port such as [::1]:9090");
  }
  if (!IsNumericAddress(std::string(host))) {
    return Unexpected(text, "a numeric address and port such as 127.0.0.1:9090");
  }
  return std::string(text);
}

}  // namespace moment::config
