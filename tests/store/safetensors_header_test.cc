#include "daemon/store/safetensors_header.h"

#include "daemon/store/bucket_plan.h"
#include "daemon/store/bytes.h"
#include "daemon/store/json_text.h"
#include "tests/store/store_driver.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

BucketHeader HeaderOf(const v1::Layout& layout, int bucket) {
  return BuildHeader(layout, layout.buckets(bucket));
}

v1::Layout OneTensor(const std::string& name, std::vector<uint64_t> shape) {
  LayoutRequest request;
  request.members = {MakeMember("m")};
  request.tensors = {MakeTensor(name, 0, std::move(shape))};
  return PlanLayout(nullptr, request);
}

TEST_CASE("Header: its length stands before it and it is padded with spaces to 4096", "[store]") {
  const BucketHeader header = HeaderOf(OneTensor("t", {3}), 0);
  CHECK(header.bytes.size() == 4096);
  CHECK(header.geometry.header_bytes == 4096);
  CHECK(GetUint64(AsBytes(header.bytes), 0) == 4096 - 8);
  CHECK(header.bytes.substr(8, 1) == "{");
  CHECK(header.bytes.back() == ' ');
}

TEST_CASE("Header: it is the text that the format's page shows", "[store]") {
  const std::string text = HeaderOf(OneTensor("t", {2, 3}), 0).bytes.substr(8);
  CHECK(text.substr(0, text.find_last_not_of(' ') + 1) ==
        R"({"__metadata__":{"format":"momentd bucket","version":"1","member":"m","bucket":"0"},)"
        R"("main/t":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
        R"("__pad__/main":{"dtype":"U8","shape":[4072],"data_offsets":[24,4096]},)"
        R"("exp_avg/t":{"dtype":"F32","shape":[2,3],"data_offsets":[4096,4120]},)"
        R"("__pad__/exp_avg":{"dtype":"U8","shape":[4072],"data_offsets":[4120,8192]},)"
        R"("exp_avg_sq/t":{"dtype":"F32","shape":[2,3],"data_offsets":[8192,8216]},)"
        R"("__pad__/exp_avg_sq":{"dtype":"U8","shape":[4072],"data_offsets":[8216,12288]},)"
        R"("__checksums__":{"dtype":"U8","shape":[4096],"data_offsets":[12288,16384]}})");
}

TEST_CASE("Header: a segment that fills its blocks has no pad", "[store]") {
  const std::string bytes = HeaderOf(OneTensor("t", {1024}), 0).bytes;
  CHECK(bytes.find("__pad__") == std::string::npos);
}

TEST_CASE("Header: names are escaped as JSON", "[store]") {
  const std::string bytes = HeaderOf(OneTensor("a\"\\\n\xc3\xa4/\x7f", {1}), 0).bytes;
  CHECK(bytes.find("\"main/a\\\"\\\\\\u000a\xc3\xa4/\x7f\"") != std::string::npos);
}

TEST_CASE("Header: it grows in steps of 4096", "[store]") {
  const BucketHeader header = HeaderOf(OneTensor(std::string(2000, 'n'), {1}), 0);
  CHECK(header.bytes.size() == 8192);
  CHECK(header.geometry.segments[0].offset == 8192);
}

TEST_CASE("Header: the bound of a bucket's header is above its real length", "[store]") {
  for (const std::string& name : {std::string("t"), std::string(3000, '\x02')}) {
    const v1::Layout layout = OneTensor(name, {1, 1, 1, 1});
    CHECK(HeaderOf(layout, 0).bytes.find_last_not_of(' ') <
          HeaderBaseBytesBound(layout.members(0)) + HeaderBytesBound(layout.tensors(0)));
  }
}

}  // namespace
}  // namespace moment::store
