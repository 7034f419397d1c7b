#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <utility>

#include "daemon/cli/json_writer.h"
#include "daemon/cli/message_json.h"
#include "moment/v1/admin.pb.h"
#include "tests/support/catch.h"

namespace moment::cli {
namespace {

google::protobuf::Struct Parsed(const std::string& document) {
  google::protobuf::Struct parsed;
  INFO(document);
  REQUIRE(google::protobuf::util::JsonStringToMessage(document, &parsed).ok());
  return parsed;
}

TEST_CASE("JsonWriter: nests objects and arrays", "[cli]") {
  JsonWriter writer;
  writer.BeginObject();
  writer.Key("a");
  writer.BeginArray();
  writer.Unsigned(1);
  writer.Signed(-2);
  writer.BeginObject();
  writer.EndObject();
  writer.EndArray();
  writer.Key("b");
  writer.Null();
  writer.EndObject();
  const std::string document = std::move(writer).Take();
  CHECK(document == "{\n  \"a\": [\n    1,\n    -2,\n    {}\n  ],\n  \"b\": null\n}\n");
}

TEST_CASE("JsonWriter: escapes what JSON does not allow in a string", "[cli]") {
  JsonWriter writer;
  writer.String("q\" b\\ n\n \x1f \x7f \xff ü");
  const std::string document = std::move(writer).Take();
  CHECK(document == "\"q\\\" b\\\\ n\\u000a \\u001f \\u007f \\ufffd ü\"\n");
}

TEST_CASE("JsonWriter: numbers read back exactly; what is not finite is null", "[cli]") {
  JsonWriter writer;
  writer.BeginArray();
  writer.Number(0.1);
  writer.Number(1e300);
  writer.Number(std::nan(""));
  writer.Number(INFINITY);
  writer.Unsigned(18'446'744'073'709'551'615ull);
  writer.Bool(true);
  writer.EndArray();
  const std::string document = std::move(writer).Take();
  CHECK(document == "[\n  0.1,\n  1e+300,\n  null,\n  null,\n  18446744073709551615,\n  true\n]\n");
}

TEST_CASE("MessageDocument: begins with schema_version and holds every field", "[cli]") {
  v1::StatusResponse status;
  status.set_version("1.2.3");
  status.add_state_directories()->set_path("/s");
  const google::protobuf::Struct parsed = Parsed(MessageDocument(status));
  CHECK(parsed.fields().at("schema_version").number_value() == kJsonSchemaVersion);
  CHECK(parsed.fields().at("version").string_value() == "1.2.3");
  CHECK(parsed.fields().at("draining").bool_value() == false);
  CHECK(parsed.fields().at("sessions").list_value().values_size() == 0);
  CHECK(parsed.fields().at("pool").has_null_value());
  const google::protobuf::Struct directory =
      parsed.fields().at("state_directories").list_value().values(0).struct_value();
  CHECK(directory.fields().at("path").string_value() == "/s");
  CHECK(directory.fields().at("free_bytes").number_value() == 0);
}

TEST_CASE("MessageDocument: texts stand before the message's fields", "[cli]") {
  const std::string document = MessageDocument(v1::StatsResponse(), {{"kind", "stats"}});
  CHECK(document ==
        "{\n  \"schema_version\": 1,\n  \"kind\": \"stats\",\n  \"prometheus_text\": \"\"\n}\n");
}

TEST_CASE("MessageDocument: digests and bytes are hexadecimal, times seconds", "[cli]") {
  v1::CommitRecord commit;
  commit.set_step_id(std::string("\x00\xff", 2));
  commit.set_layout_digest(0xabc);
  commit.set_unix_time_ns(1'500'000'000);
  commit.add_buckets()->set_checksums_digest(~uint64_t{0});
  const google::protobuf::Struct parsed = Parsed(MessageDocument(commit));
  CHECK(parsed.fields().at("step_id").string_value() == "00ff");
  CHECK(parsed.fields().at("layout_digest").string_value() == "0000000000000abc");
  CHECK(parsed.fields().at("unix_time_seconds").number_value() == 1.5);
  CHECK(parsed.fields().count("unix_time_ns") == 0);
  const google::protobuf::Struct image =
      parsed.fields().at("buckets").list_value().values(0).struct_value();
  CHECK(image.fields().at("checksums_digest").string_value() == "ffffffffffffffff");
}

TEST_CASE("MessageDocument: enums are lower case without their type's name", "[cli]") {
  v1::Layout layout;
  layout.set_profile(v1::PROFILE_TORCH_CUDA_210);
  layout.add_tensors()->set_parameter_type(v1::DATA_TYPE_BFLOAT16);
  const google::protobuf::Struct parsed = Parsed(MessageDocument(layout));
  CHECK(parsed.fields().at("profile").string_value() == "torch-cuda-210");
  CHECK(parsed.fields()
            .at("tensors")
            .list_value()
            .values(0)
            .struct_value()
            .fields()
            .at("parameter_type")
            .string_value() == "bfloat16");
}

TEST_CASE("MessageDocument: an absent optional number is null, a present one a number", "[cli]") {
  v1::Hyperparameters hyperparameters;
  CHECK(Parsed(MessageDocument(hyperparameters)).fields().at("gradient_scale").has_null_value());
  hyperparameters.set_gradient_scale(0.5F);
  CHECK(Parsed(MessageDocument(hyperparameters)).fields().at("gradient_scale").number_value() ==
        0.5);
}

}  // namespace
}  // namespace moment::cli
