#include "daemon/cli/json_writer.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "daemon/cli/utf8.h"

namespace moment::cli {

void JsonWriter::BeginObject() { Begin('{'); }
void JsonWriter::EndObject() { End('}'); }
void JsonWriter::BeginArray() { Begin('['); }
void JsonWriter::EndArray() { End(']'); }

void JsonWriter::Key(absl::string_view key) {
  Level& level = levels_.back();
  text_ += level.empty ? "" : ",";
  level.empty = false;
  NewLine();
  AppendQuoted(key);
  text_ += ": ";
  after_key_ = true;
}

void JsonWriter::String(absl::string_view value) {
  BeforeValue();
  AppendQuoted(value);
}

void JsonWriter::Unsigned(uint64_t value) {
  BeforeValue();
  absl::StrAppend(&text_, value);
}

void JsonWriter::Signed(int64_t value) {
  BeforeValue();
  absl::StrAppend(&text_, value);
}

void JsonWriter::Number(double value) {
  if (!std::isfinite(value)) {
    Null();
    return;
  }
  BeforeValue();
  // The shortest text that reads back as the same double.
  char buffer[32];
  const std::to_chars_result result = std::to_chars(buffer, buffer + sizeof(buffer), value);
  text_.append(buffer, result.ptr);
}

void JsonWriter::Bool(bool value) {
  BeforeValue();
  text_ += value ? "true" : "false";
}

void JsonWriter::Null() {
  BeforeValue();
  text_ += "null";
}

std::string JsonWriter::Take() && { return std::move(text_) + "\n"; }

void JsonWriter::BeforeValue() {
  if (std::exchange(after_key_, false) || levels_.empty()) {
    return;
  }
  Level& level = levels_.back();
  text_ += level.empty ? "" : ",";
  level.empty = false;
  NewLine();
}

void JsonWriter::Begin(char bracket) {
  BeforeValue();
  text_ += bracket;
  levels_.push_back({});
}

void JsonWriter::End(char bracket) {
  const bool empty = levels_.back().empty;
  levels_.pop_back();
  if (!empty) {
    NewLine();
  }
  text_ += bracket;
}

void JsonWriter::NewLine() {
  text_ += '\n';
  text_.append(2 * levels_.size(), ' ');
}

void JsonWriter::AppendQuoted(absl::string_view text) {
  text_ += '"';
  while (!text.empty()) {
    const uint64_t length = Utf8Length(text);
    const absl::string_view character = text.substr(0, length == 0 ? 1 : length);
    const uint8_t first = static_cast<uint8_t>(character[0]);
    if (length == 0) {
      text_ += "\\ufffd";
    } else if (first == '"' || first == '\\') {
      absl::StrAppend(&text_, "\\", character);
    } else if (first < 0x20 || first == 0x7f) {
      absl::StrAppendFormat(&text_, "\\u%04x", static_cast<unsigned>(first));
    } else {
      absl::StrAppend(&text_, character);
    }
    text.remove_prefix(character.size());
  }
  text_ += '"';
}

}  // namespace moment::cli
