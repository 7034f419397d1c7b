#pragma once

#include "absl/strings/string_view.h"

namespace moment::store {

// Well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool IsUtf8(absl::string_view text);

}  // namespace moment::store
