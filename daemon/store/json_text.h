#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace moment::store {

// Appends `text` as a JSON string with its quotes. Bytes above 127 are kept (the text is UTF-8).
void AppendJsonString(absl::string_view text, std::string& json);

}  // namespace moment::store
