#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <utility>
#include <vector>

#include "daemon/cli/json_writer.h"

namespace moment::cli {

inline constexpr int kJsonSchemaVersion = 1;

// Writes every field of `message`, set or not, into the object that is open in `writer`. The
// definitions in proto/moment/v1 are the schema; field names are theirs. Of the values:
//   integers                numbers, 64-bit ones too
//   fixed64 (digests), bytes  hexadecimal text
//   enums                   lower case without the type's name: "float32", "torch-cpu"
//   <name>_ns               <name>_seconds, a number of seconds
//   absent messages and absent optional fields   null
void WriteFields(JsonWriter& writer, const google::protobuf::Message& message);
// The same with braces around it.
void WriteMessage(JsonWriter& writer, const google::protobuf::Message& message);

// The lower-case name of an enum value, as in JSON.
std::string EnumText(const google::protobuf::EnumValueDescriptor& value);

// A document with `schema_version`, these texts, and the fields of the message.
std::string MessageDocument(const google::protobuf::Message& message,
                            const std::vector<std::pair<std::string, std::string>>& texts = {});

}  // namespace moment::cli
