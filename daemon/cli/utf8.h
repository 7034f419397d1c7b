#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace moment::cli {

// Length in bytes of the well-formed UTF-8 character that `text` begins with; 0 if it begins with
// none (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF).
uint64_t Utf8Length(absl::string_view text);

}  // namespace moment::cli
