#pragma once

// Catch2 v2 (Debian 12) and v3 (Ubuntu 24.04) under one name.
#include <string>

#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>

namespace moment::test {
using Catch::Matchers::ContainsSubstring;
}  // namespace moment::test
#else
#include <catch2/catch.hpp>

namespace moment::test {
inline auto ContainsSubstring(const std::string& text) { return Catch::Matchers::Contains(text); }
}  // namespace moment::test
#endif
