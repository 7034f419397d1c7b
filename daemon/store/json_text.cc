#include "daemon/store/json_text.h"

#include <array>
#include <cstdio>

namespace moment::store {

void AppendJsonString(absl::string_view text, std::string& json) {
  json += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x", static_cast<unsigned>(c));
      json += escaped.data();
    } else {
      json += c;
    }
  }
  json += '"';
}

}  // namespace moment::store
