#include "daemon/store/checksum.h"

#include "absl/strings/str_cat.h"

// The library's run-time choice of AVX2 and AVX-512; XXH3_64bits itself is built for SSE2.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace moment::store {

uint64_t Xxh64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

uint64_t Xxh64(absl::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string HexXxh128(absl::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return absl::StrCat(absl::Hex(hash.high64, absl::kZeroPad16),
                      absl::Hex(hash.low64, absl::kZeroPad16));
}

}  // namespace moment::store
