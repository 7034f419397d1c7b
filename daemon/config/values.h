#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace moment::config {

// How option values are written. Each returns INVALID_ARGUMENT naming the text and the form that is
// expected; the caller adds which option it is.

// "true", "false", "yes", "no", "on", "off", "1", "0".
absl::StatusOr<bool> ParseBool(absl::string_view text);
absl::StatusOr<uint64_t> ParseCount(absl::string_view text, uint64_t least, uint64_t most);
// "4096", "64KiB", "1.5GiB", "2TB" (KiB is 1024, KB is 1000).
absl::StatusOr<uint64_t> ParseBytes(absl::string_view text);
// "500ms", "30s", "5m", "1h".
absl::StatusOr<std::chrono::milliseconds> ParseDuration(absl::string_view text);
// Permission bits in octal: "0750".
absl::StatusOr<uint32_t> ParseMode(absl::string_view text);
// "" is none; else "address:port" with a numeric address ("127.0.0.1:9090", "[::1]:9090").
absl::StatusOr<std::string> ParseListenAddress(absl::string_view text);

}  // namespace moment::config
