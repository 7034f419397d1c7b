#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace moment::store {

inline constexpr size_t kUuidBytes = 16;

// 32 hexadecimal digits of fresh randomness.
std::string NewUuid();
bool IsUuid(absl::string_view text);
std::string UuidBytes(absl::string_view text);  // 16 bytes; zeros for what is no uuid
std::string UuidText(absl::string_view bytes);

}  // namespace moment::store
