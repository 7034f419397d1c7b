#include "daemon/store/utf8.h"

#include <cstddef>
#include <cstdint>

namespace moment::store {
namespace {

// Bytes of the sequence that begins with this byte; 0 if none does.
size_t SequenceBytes(uint8_t first) {
  if (first < 0x80) {
    return 1;
  }
  if (first >= 0xc2 && first < 0xe0) {
    return 2;
  }
  if (first >= 0xe0 && first < 0xf0) {
    return 3;
  }
  return first >= 0xf0 && first < 0xf5 ? 4 : 0;
}

// The range of the second byte, which alone keeps out overlong forms, surrogates and what is too
// large.
bool SecondFits(uint8_t first, uint8_t second) {
  const uint8_t low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const uint8_t high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  return second >= low && second <= high;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i]);
    const size_t length = SequenceBytes(first);
    if (length == 0 || length > text.size() - i) {
      return false;
    }
    if (length > 1 && !SecondFits(first, static_cast<uint8_t>(text[i + 1]))) {
      return false;
    }
    for (size_t k = 2; k < length; ++k) {
      if ((static_cast<uint8_t>(text[i + k]) & 0xc0) != 0x80) {
        return false;
      }
    }
    i += length;
  }
  return true;
}

}  // namespace moment::store
