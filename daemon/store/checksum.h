#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace moment::store {

// XXH3-64 without a seed: units of bucket files, checksum tables, records, layouts. Uses the widest
// vectors of the CPU.
uint64_t Xxh64(std::span<const std::byte> bytes);
uint64_t Xxh64(absl::string_view bytes);

// XXH3-128 as 32 hexadecimal digits.
std::string HexXxh128(absl::string_view bytes);

}  // namespace moment::store
