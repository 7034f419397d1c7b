#include "daemon/base/log_text.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace moment::base {

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
}

}  // namespace moment::base
