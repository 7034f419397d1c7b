#include "daemon/store/uuid.h"

#include <algorithm>
#include <cstdint>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"

namespace moment::store {

std::string NewUuid() {
  std::random_device random;
  std::string bytes(kUuidBytes, '\0');
  for (char& byte : bytes) {
    byte = static_cast<char>(random() & 0xff);
  }
  return UuidText(bytes);
}

bool IsUuid(absl::string_view text) {
  return text.size() == 2 * kUuidBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return absl::ascii_isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'f');
         });
}

std::string UuidBytes(absl::string_view text) {
  return IsUuid(text) ? absl::HexStringToBytes(text) : std::string(kUuidBytes, '\0');
}

std::string UuidText(absl::string_view bytes) { return absl::BytesToHexString(bytes); }

}  // namespace moment::store
