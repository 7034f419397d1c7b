#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace moment::cli {

// Writes one JSON document (RFC 8259), indented by two blanks. Calls follow the document's order;
// inside an object each value comes after its Key. Values that JSON cannot hold: a number that is
// not finite becomes null, bytes that are not UTF-8 become U+FFFD.
class JsonWriter {
 public:
  void BeginObject();
  void EndObject();
  void BeginArray();
  void EndArray();
  void Key(absl::string_view key);

  void String(absl::string_view value);
  void Unsigned(uint64_t value);
  void Signed(int64_t value);
  void Number(double value);
  void Bool(bool value);
  void Null();

  // The document and a newline; complete once everything that was begun is ended.
  std::string Take() &&;

 private:
  struct Level {
    bool empty = true;  // nothing inside it yet
  };

  void BeforeValue();
  void Begin(char bracket);
  void End(char bracket);
  void NewLine();
  void AppendQuoted(absl::string_view text);

  std::string text_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

}  // namespace moment::cli
