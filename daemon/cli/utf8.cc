#include "daemon/cli/utf8.h"

namespace moment::cli {
namespace {

uint8_t ByteAt(absl::string_view text, uint64_t index) { return static_cast<uint8_t>(text[index]); }

bool Between(uint8_t value, uint8_t low, uint8_t high) { return value >= low && value <= high; }

// The range of the second byte narrows after four lead bytes: that excludes what is overlong, a
// surrogate or too large.
bool SecondByteFits(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xe0:
      return Between(second, 0xa0, 0xbf);
    case 0xed:
      return Between(second, 0x80, 0x9f);
    case 0xf0:
      return Between(second, 0x90, 0xbf);
    case 0xf4:
      return Between(second, 0x80, 0x8f);
    default:
      return Between(second, 0x80, 0xbf);
  }
}

uint64_t LengthByLead(uint8_t lead) {
  if (lead < 0x80) {
    return 1;
  }
  if (Between(lead, 0xc2, 0xdf)) {
    return 2;
  }
  if (Between(lead, 0xe0, 0xef)) {
    return 3;
  }
  return Between(lead, 0xf0, 0xf4) ? 4 : 0;
}

}  // namespace

uint64_t Utf8Length(absl::string_view text) {
  if (text.empty()) {
    return 0;
  }
  const uint8_t lead = ByteAt(text, 0);
  const uint64_t length = LengthByLead(lead);
  if (length > text.size()) {
    return 0;
  }
  for (uint64_t i = 1; i < length; ++i) {
    const uint8_t byte = ByteAt(text, i);
    if (i == 1 ? !SecondByteFits(lead, byte) : !Between(byte, 0x80, 0xbf)) {
      return 0;
    }
  }
  return length;
}

}  // namespace moment::cli
