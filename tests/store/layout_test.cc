#include "daemon/store/layout.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "daemon/store/bucket_plan.h"
#include "daemon/store/layout_check.h"
#include "daemon/store/layout_file.h"
#include "daemon/store/utf8.h"
#include "tests/store/store_driver.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

LayoutRequest SmallRequest() {
  const OpenParameters parameters = SmallStore();
  LayoutRequest request;
  request.members = parameters.members;
  request.tensors = parameters.tensors;
  request.bucket_elements = parameters.bucket_elements;
  return request;
}

v1::Layout SmallLayout() { return PlanLayout(nullptr, SmallRequest()); }

std::string Refusal(const LayoutRequest& request) {
  const absl::Status status = CheckRequest(request);
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("Layout: segments follow each other, padded to 4096", "[store]") {
  const auto layout = Layout::Create(SmallLayout());
  REQUIRE(layout.ok());
  CHECK((*layout)->parameters() == 2040);
  REQUIRE((*layout)->buckets().size() == 3);
  for (const BucketGeometry& bucket : (*layout)->buckets()) {
    uint64_t end = bucket.header_bytes;
    uint64_t checksums = 0;
    for (const SegmentGeometry& segment : bucket.segments) {
      CHECK(segment.offset == end);
      CHECK(segment.length_bytes % 4096 == 0);
      CHECK(segment.length_bytes >= bucket.elements * SizeBytes(segment.type));
      CHECK(segment.first_checksum == checksums);
      end += segment.length_bytes;
      checksums += segment.units;
    }
    CHECK(bucket.checksums_offset == end);
    CHECK(bucket.checksum_count == checksums);
    CHECK(bucket.file_bytes == end + bucket.checksums_bytes);
  }
  CHECK((*layout)->buckets()[2].segments[1].type == v1::DATA_TYPE_BFLOAT16);
}

TEST_CASE("Layout: a segment has a checksum for each MiB, the last unit shorter", "[store]") {
  LayoutRequest request;
  request.members = {MakeMember("m")};
  request.tensors = {MakeTensor("t", 0, {300'000})};
  const auto layout = Layout::Create(PlanLayout(nullptr, request));
  REQUIRE(layout.ok());
  CHECK((*layout)->buckets()[0].segments[0].units == 2);
  CHECK((*layout)->buckets()[0].segments[0].length_bytes == 1'200'128);
  CHECK((*layout)->buckets()[0].segments[2].first_checksum == 4);
}

TEST_CASE("Layout: moments of types that break Adam are refused by name and reason", "[store]") {
  LayoutRequest request = SmallRequest();
  request.members[0].mutable_segments()->set_exp_avg_sq(v1::DATA_TYPE_FLOAT16);
  CHECK(Contains(Refusal(request), "exp_avg_sq of DATA_TYPE_FLOAT16 is refused"));
  CHECK(Contains(Refusal(request), "rounds to 0"));
  for (const auto type : {v1::DATA_TYPE_FLOAT8_E4M3, v1::DATA_TYPE_FLOAT8_E5M2}) {
    request = SmallRequest();
    request.members[0].mutable_segments()->set_exp_avg(type);
    CHECK(Contains(Refusal(request), v1::DataType_Name(type) + " is refused"));
    CHECK(Contains(Refusal(request), "sign descent"));
  }
  request = SmallRequest();
  request.members[0].mutable_segments()->set_exp_avg(v1::DATA_TYPE_FLOAT16);
  request.members[0].mutable_segments()->set_exp_avg_sq(v1::DATA_TYPE_BFLOAT16);
  CHECK(CheckRequest(request).ok());
}

TEST_CASE("Layout: what no store can hold is refused by name", "[store]") {
  struct Case {
    const char* message;
    std::function<void(LayoutRequest&)> edit;
  };
  const std::vector<Case> cases = {
      {"tensor 'bias' names member 7", [](auto& r) { r.tensors[1].set_member(7); }},
      {"a tensor's name is empty", [](auto& r) { r.tensors[1].set_name(""); }},
      {"'weight' is named twice", [](auto& r) { r.tensors[1].set_name("weight"); }},
      {"member 'opt0_0' is named twice", [](auto& r) { r.members[1].set_name("opt0_0"); }},
      {"parameters of DATA_TYPE_FLOAT8_E4M3",
       [](auto& r) { r.tensors[1].set_parameter_type(v1::DATA_TYPE_FLOAT8_E4M3); }},
      {"more than 281474976710656 elements",
       [](auto& r) {
         r.tensors[1].add_shape(uint64_t{1} << 40);
         r.tensors[1].add_shape(uint64_t{1} << 40);
       }},
      {"has 65 dimensions",
       [](auto& r) {
         for (int i = 0; i < 64; ++i) {
           r.tensors[1].add_shape(1);
         }
       }},
      {"bucket_elements is 200003585", [](auto& r) { r.bucket_elements = 200'003'585; }},
      {"more than 65536 buckets",
       [](auto& r) {
         r.bucket_elements = 1;
         r.tensors[1].set_shape(0, 70'000);
       }},
      {"has 7 elements, its shard 8",
       [](auto& r) {
         v1::ShardPiece* piece = r.tensors[1].mutable_shard()->add_pieces();
         piece->set_key("bias");
         piece->add_global_shape(8);
         piece->add_offset(0);
         piece->add_extent(8);
         piece->set_flat_count(8);
       }},
      {"leaves the global shape in dimension 0",
       [](auto& r) {
         v1::ShardPiece* piece = r.tensors[1].mutable_shard()->add_pieces();
         piece->add_global_shape(8);
         piece->add_offset(2);
         piece->add_extent(7);
         piece->set_flat_count(7);
       }},
      {"flat range leaves the box",
       [](auto& r) {
         v1::ShardPiece* piece = r.tensors[1].mutable_shard()->add_pieces();
         piece->add_global_shape(8);
         piece->add_offset(0);
         piece->add_extent(8);
         piece->set_flat_begin(2);
         piece->set_flat_count(7);
       }},
  };
  for (const Case& refused : cases) {
    LayoutRequest request = SmallRequest();
    refused.edit(request);
    INFO(refused.message);
    CHECK(Contains(Refusal(request), refused.message));
  }
}

TEST_CASE("Layout: names are UTF-8 of at most 4,096 bytes without NUL", "[store]") {
  CHECK(CheckName("it", std::string(4096, 'x')).ok());
  CHECK(CheckName("it", "\xe2\x82\xac/ \x01").ok());
  CHECK(!CheckName("it", std::string(4097, 'x')).ok());
  CHECK(!CheckName("it", "\xff").ok());
  CHECK(!CheckName("it", std::string("a\0b", 3)).ok());
}

TEST_CASE("Layout: UTF-8 has no overlong forms, surrogates or cut sequences", "[store]") {
  for (const char* text :
       {"", "a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(IsUtf8(text));
  }
  for (const char* text : {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xe2\x82",
                           "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x28\xa1"}) {
    CHECK(!IsUtf8(text));
  }
}

TEST_CASE("Layout: a stored layout must place every element once, in order", "[store]") {
  const std::vector<std::function<void(v1::Layout&)>> damages = {
      [](auto& l) { l.set_format_version(2); },
      [](auto& l) { l.mutable_buckets(0)->set_member(9); },
      [](auto& l) { l.mutable_buckets(0)->mutable_slices(0)->set_tensor(99); },
      [](auto& l) { l.mutable_buckets(0)->mutable_slices(0)->set_element_offset(1); },
      [](auto& l) { l.mutable_buckets(0)->mutable_slices(0)->set_element_count(0); },
      [](auto& l) { l.mutable_buckets(1)->mutable_slices(0)->set_element_count(499); },
      [](auto& l) { l.mutable_buckets(1)->mutable_slices(0)->set_element_count(501); },
      [](auto& l) { l.mutable_buckets(1)->set_number(0); },
      [](auto& l) { l.mutable_buckets(2)->set_member(0); },
      [](auto& l) { l.mutable_buckets()->RemoveLast(); },
      [](auto& l) { l.mutable_buckets(0)->clear_slices(); },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    v1::Layout layout = SmallLayout();
    damages[i](layout);
    INFO("damage " << i);
    CHECK(absl::IsInvalidArgument(Layout::Create(layout).status()));
  }
}

TEST_CASE("Layout: comparison names the first difference", "[store]") {
  struct Case {
    const char* message;
    std::function<void(LayoutRequest&)> edit;
  };
  const std::vector<Case> cases = {
      {"", [](auto&) {}},
      {"the store has profile PROFILE_TORCH_CPU, the request PROFILE_TE",
       [](auto& r) { r.profile = v1::PROFILE_TE; }},
      {"the store is not positional, the request is positional",
       [](auto& r) { r.positional = true; }},
      {"member 'opt0_1' of the store is not in the request",
       [](auto& r) { r.members[1].set_name("other"); }},
      {"member 'opt0_1' has segment exp_avg of DATA_TYPE_BFLOAT16 in the store, of "
       "DATA_TYPE_FLOAT32 in the request",
       [](auto& r) { r.members[1].clear_segments(); }},
      {"tensor 'bias' of member 'opt0_0' of the store is not in the request",
       [](auto& r) { r.tensors[1].set_name("other"); }},
      {"tensor 'bias' of member 'opt0_0' has shape [7] in the store, [7, 1] in the request",
       [](auto& r) { r.tensors[1].add_shape(1); }},
      {"tensor 'bias' of member 'opt0_0' is a parameter of DATA_TYPE_FLOAT32 in the store, of "
       "DATA_TYPE_BFLOAT16 in the request",
       [](auto& r) { r.tensors[1].set_parameter_type(v1::DATA_TYPE_BFLOAT16); }},
      {"tensor 'bias' of member 'opt0_0' has shard {} in the store, {replica: 1} in the request",
       [](auto& r) { r.tensors[1].mutable_shard()->set_replica(1); }},
  };
  const v1::Layout stored = SmallLayout();
  for (const Case& compared : cases) {
    LayoutRequest request = SmallRequest();
    compared.edit(request);
    CHECK(FirstDifference(stored, request) == compared.message);
  }
}

TEST_CASE("Layout file: what was written is read", "[store]") {
  const v1::Layout layout = SmallLayout();
  const auto read = ReadLayoutText("path", WriteLayoutText(layout), LayoutDigest(layout));
  REQUIRE(read.ok());
  CHECK(read->SerializeAsString() == layout.SerializeAsString());
}

TEST_CASE("Layout file: other content than its name says is damage, by path", "[store]") {
  const v1::Layout layout = SmallLayout();
  std::string text = WriteLayoutText(layout);
  const size_t at = text.find("weight");
  text[at] = 'v';
  const auto other = ReadLayoutText("/a/layout.x.json", text, LayoutDigest(layout));
  CHECK(absl::IsDataLoss(other.status()));
  CHECK(Contains(std::string(other.status().message()), "/a/layout.x.json at offset 0"));
  text.resize(at);
  CHECK(absl::IsDataLoss(ReadLayoutText("p", text, LayoutDigest(layout)).status()));
}

TEST_CASE("Layout file: a newer format is refused by version", "[store]") {
  const auto read = ReadLayoutText("p", "{\"format_version\": 2, \"news\": 1}", 0);
  CHECK(absl::IsFailedPrecondition(read.status()));
}

TEST_CASE("Store file: what was written is read; the rest is refused", "[store]") {
  v1::StoreFile store;
  store.set_format_version(1);
  store.set_store_uuid(std::string(32, 'a'));
  store.mutable_name()->set_job("j/\xc3\xa4");
  store.mutable_name()->set_role("r");
  const auto read = ReadStoreText("p", WriteStoreText(store));
  REQUIRE(read.ok());
  CHECK(read->name().job() == "j/\xc3\xa4");
  CHECK(absl::IsDataLoss(ReadStoreText("p", "{}").status()));
  CHECK(absl::IsDataLoss(ReadStoreText("p", "").status()));
  CHECK(absl::IsFailedPrecondition(ReadStoreText("p", "{\"format_version\": 9}").status()));
}

}  // namespace
}  // namespace moment::store
