#include "daemon/cli/message_json.h"

#include <google/protobuf/descriptor.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace moment::cli {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr double kNanosecondsPerSecond = 1e9;

// AdamMode -> "adam_mode_"
std::string ValuePrefix(const std::string& type_name) {
  std::string prefix;
  for (const char letter : type_name) {
    if (absl::ascii_isupper(static_cast<unsigned char>(letter)) && !prefix.empty()) {
      prefix += '_';
    }
    prefix += absl::ascii_tolower(static_cast<unsigned char>(letter));
  }
  return prefix + "_";
}

std::string HexOfDigest(uint64_t digest) {
  return absl::StrCat(absl::Hex(digest, absl::kZeroPad16));
}

bool InNanoseconds(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 && absl::EndsWith(field.name(), "_ns");
}

std::string KeyOf(const FieldDescriptor& field) {
  if (!InNanoseconds(field)) {
    return field.name();
  }
  return absl::StrCat(field.name().substr(0, field.name().size() - 3), "_seconds");
}

void WriteText(JsonWriter& writer, const FieldDescriptor& field, const std::string& text) {
  if (field.type() == FieldDescriptor::TYPE_BYTES) {
    writer.String(absl::BytesToHexString(text));
  } else {
    writer.String(text);
  }
}

void WriteUnsigned(JsonWriter& writer, const FieldDescriptor& field, uint64_t value) {
  if (field.type() == FieldDescriptor::TYPE_FIXED64) {
    writer.String(HexOfDigest(value));
  } else {
    writer.Unsigned(value);
  }
}

void WriteSigned(JsonWriter& writer, const FieldDescriptor& field, int64_t value) {
  if (InNanoseconds(field)) {
    writer.Number(static_cast<double>(value) / kNanosecondsPerSecond);
  } else {
    writer.Signed(value);
  }
}

// One value of a field: element `index` of a repeated one, the value itself of a singular one.
class Value {
 public:
  Value(const Message& message, const FieldDescriptor& field, int index)
      : message_(message), field_(field), index_(index), reflection_(*message.GetReflection()) {}

  void Write(JsonWriter& writer) const {
    switch (field_.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return writer.Signed(Get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
      case FieldDescriptor::CPPTYPE_INT64:
        return WriteSigned(writer, field_,
                           Get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
      case FieldDescriptor::CPPTYPE_UINT32:
        return writer.Unsigned(Get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
      case FieldDescriptor::CPPTYPE_UINT64:
        return WriteUnsigned(writer, field_,
                             Get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return writer.Number(Get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return writer.Number(
            static_cast<double>(Get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat)));
      case FieldDescriptor::CPPTYPE_BOOL:
        return writer.Bool(Get(&Reflection::GetBool, &Reflection::GetRepeatedBool));
      case FieldDescriptor::CPPTYPE_ENUM:
        return writer.String(EnumText(*Get(&Reflection::GetEnum, &Reflection::GetRepeatedEnum)));
      case FieldDescriptor::CPPTYPE_STRING:
        return WriteText(writer, field_,
                         Get(&Reflection::GetString, &Reflection::GetRepeatedString));
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return WriteMessage(writer, field_.is_repeated()
                                        ? reflection_.GetRepeatedMessage(message_, &field_, index_)
                                        : reflection_.GetMessage(message_, &field_));
    }
  }

 private:
  template <typename Result>
  Result Get(Result (Reflection::*singular)(const Message&, const FieldDescriptor*) const,
             Result (Reflection::*repeated)(const Message&, const FieldDescriptor*, int)
                 const) const {
    return field_.is_repeated() ? (reflection_.*repeated)(message_, &field_, index_)
                                : (reflection_.*singular)(message_, &field_);
  }

  const Message& message_;
  const FieldDescriptor& field_;
  int index_;
  const Reflection& reflection_;
};

void WriteField(JsonWriter& writer, const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  writer.Key(KeyOf(field));
  if (field.is_repeated()) {
    writer.BeginArray();
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      Value(message, field, i).Write(writer);
    }
    writer.EndArray();
  } else if (field.has_presence() && !reflection.HasField(message, &field)) {
    writer.Null();
  } else {
    Value(message, field, 0).Write(writer);
  }
}

}  // namespace

std::string EnumText(const EnumValueDescriptor& value) {
  const std::string name = absl::AsciiStrToLower(value.name());
  const std::string prefix = ValuePrefix(value.type()->name());
  return absl::StrReplaceAll(absl::StartsWith(name, prefix) ? name.substr(prefix.size()) : name,
                             {{"_", "-"}});
}

void WriteFields(JsonWriter& writer, const Message& message) {
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    WriteField(writer, message, *type.field(i));
  }
}

void WriteMessage(JsonWriter& writer, const Message& message) {
  writer.BeginObject();
  WriteFields(writer, message);
  writer.EndObject();
}

std::string MessageDocument(const Message& message,
                            const std::vector<std::pair<std::string, std::string>>& texts) {
  JsonWriter writer;
  writer.BeginObject();
  writer.Key("schema_version");
  writer.Signed(kJsonSchemaVersion);
  for (const auto& [key, text] : texts) {
    writer.Key(key);
    writer.String(text);
  }
  WriteFields(writer, message);
  writer.EndObject();
  return std::move(writer).Take();
}

}  // namespace moment::cli
