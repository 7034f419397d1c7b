#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace moment::session {

inline constexpr size_t kTokenBytes = 16;

// From the kernel's generator.
std::string RandomBytes(size_t count);

// In a time that depends on the lengths alone.
bool EqualInConstantTime(absl::string_view a, absl::string_view b);

}  // namespace moment::session
