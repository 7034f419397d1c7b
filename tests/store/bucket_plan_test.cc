#include "daemon/store/bucket_plan.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "daemon/store/layout.h"
#include "daemon/store/safetensors_header.h"
#include "tests/store/store_driver.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

LayoutRequest OneMember(std::vector<v1::Tensor> tensors, uint64_t bucket_elements = 100) {
  LayoutRequest request;
  request.members = {MakeMember("opt0_0")};
  request.tensors = std::move(tensors);
  request.bucket_elements = bucket_elements;
  return request;
}

// Every plan must pass the checks that stored layouts pass.
v1::Layout Plan(const LayoutRequest& request, const v1::Layout* stored = nullptr) {
  REQUIRE(CheckRequest(request).ok());
  const v1::Layout layout = PlanLayout(stored, request);
  REQUIRE(Layout::Create(layout).ok());
  return layout;
}

TEST_CASE("Buckets: one closes when its elements are full, a tensor goes on in the next",
          "[store]") {
  const v1::Layout layout = Plan(OneMember({MakeTensor("a", 0, {70}), MakeTensor("b", 0, {250})}));
  REQUIRE(layout.buckets_size() == 4);
  CHECK(layout.buckets(0).slices_size() == 2);
  CHECK(layout.buckets(0).slices(1).element_count() == 30);
  CHECK(layout.buckets(1).slices(0).element_offset() == 30);
  CHECK(layout.buckets(2).slices(0).element_offset() == 130);
  CHECK(layout.buckets(3).slices(0).element_offset() == 230);
  CHECK(layout.buckets(3).slices(0).element_count() == 20);
  CHECK(layout.buckets(3).number() == 3);
}

TEST_CASE("Buckets: a tensor that fills a bucket exactly leaves none behind", "[store]") {
  CHECK(Plan(OneMember({MakeTensor("a", 0, {100})})).buckets_size() == 1);
  CHECK(Plan(OneMember({MakeTensor("a", 0, {100}), MakeTensor("b", 0, {1})})).buckets_size() == 2);
}

TEST_CASE("Buckets: one of the default size is full pages in every type", "[store]") {
  LayoutRequest request = OneMember({MakeTensor("a", 0, {kMaxBucketElements + 1})}, 0);
  request.members[0].mutable_segments()->set_exp_avg(v1::DATA_TYPE_BFLOAT16);
  const v1::Layout layout = Plan(request);
  REQUIRE(layout.buckets_size() == 2);
  const BucketGeometry geometry = BuildHeader(layout, layout.buckets(0)).geometry;
  for (const SegmentGeometry& segment : geometry.segments) {
    CHECK(segment.length_bytes == kMaxBucketElements * SizeBytes(segment.type));
  }
}

TEST_CASE("Buckets: scalars have one element", "[store]") {
  const v1::Layout layout = Plan(OneMember({MakeTensor("a", 0, {})}));
  REQUIRE(layout.buckets_size() == 1);
  CHECK(layout.buckets(0).slices(0).element_count() == 1);
}

TEST_CASE("Buckets: one closes at 4,096 tensors", "[store]") {
  std::vector<v1::Tensor> tensors;
  for (int i = 0; i < 5000; ++i) {
    tensors.push_back(MakeTensor(absl::StrCat("t", i), 0, {1}));
  }
  const v1::Layout layout = Plan(OneMember(std::move(tensors), kMaxBucketElements));
  REQUIRE(layout.buckets_size() == 2);
  CHECK(layout.buckets(0).slices_size() == 4096);
}

TEST_CASE("Buckets: one closes at 8 MiB of header, however long the names are", "[store]") {
  std::vector<v1::Tensor> tensors;
  for (int i = 0; i < 1500; ++i) {
    tensors.push_back(MakeTensor(absl::StrCat(std::string(1000, '\x01'), i), 0, {1}));
  }
  const v1::Layout layout = Plan(OneMember(std::move(tensors), kMaxBucketElements));
  CHECK(layout.buckets_size() > 1);
  for (const v1::Bucket& bucket : layout.buckets()) {
    CHECK(BuildHeader(layout, bucket).geometry.header_bytes <= kMaxHeaderBytes);
  }
}

TEST_CASE("Buckets: empty tensors are in none, wherever they stand", "[store]") {
  const v1::Layout layout = Plan(OneMember(
      {MakeTensor("first", 0, {0}), MakeTensor("a", 0, {5}), MakeTensor("middle", 0, {3, 0}),
       MakeTensor("b", 0, {5}), MakeTensor("last", 0, {0, 0})}));
  REQUIRE(layout.buckets_size() == 1);
  CHECK(layout.buckets(0).slices_size() == 2);
  CHECK(layout.tensors_size() == 5);
}

TEST_CASE("Buckets: a member or a rank without elements has none", "[store]") {
  CHECK(Plan(OneMember({})).buckets_size() == 0);
  CHECK(Plan(LayoutRequest()).buckets_size() == 0);
  LayoutRequest request = OneMember({MakeTensor("a", 1, {5}), MakeTensor("none", 0, {0})});
  request.members.push_back(MakeMember("opt0_1"));
  const v1::Layout layout = Plan(request);
  REQUIRE(layout.buckets_size() == 1);
  CHECK(layout.buckets(0).member() == 1);
}

TEST_CASE("Buckets: members do not share one, whatever the client's order", "[store]") {
  LayoutRequest request =
      OneMember({MakeTensor("a", 1, {5}), MakeTensor("a", 0, {6}), MakeTensor("b", 1, {7})});
  request.members.push_back(MakeMember("opt0_1"));
  const v1::Layout layout = Plan(request);
  REQUIRE(layout.buckets_size() == 2);
  CHECK(layout.buckets(0).member() == 0);
  CHECK(layout.buckets(1).slices_size() == 2);
  CHECK(MapTensors(layout, request) == std::vector<uint32_t>{0, 1, 2});
}

TEST_CASE("Buckets: a superset keeps what there is and adds behind it", "[store]") {
  const LayoutRequest first = OneMember({MakeTensor("a", 0, {70}), MakeTensor("b", 0, {10})});
  const v1::Layout stored = Plan(first);
  LayoutRequest more = OneMember({MakeTensor("new", 0, {50}), MakeTensor("b", 0, {10}),
                                  MakeTensor("a", 0, {70}), MakeTensor("a", 1, {4})});
  more.members.push_back(MakeMember("opt1"));
  CHECK(FirstDifference(stored, more) == "");
  const v1::Layout layout = Plan(more, &stored);
  REQUIRE(layout.buckets_size() == 3);
  CHECK(layout.buckets(0).SerializeAsString() == stored.buckets(0).SerializeAsString());
  CHECK(layout.buckets(1).number() == 1);
  CHECK(layout.buckets(1).slices(0).tensor() == 2);
  CHECK(layout.buckets(2).member() == 1);
  CHECK(layout.buckets(2).number() == 0);
  CHECK(MapTensors(layout, more) == std::vector<uint32_t>{2, 1, 0, 3});
}

TEST_CASE("Buckets: members are known by name, not by index", "[store]") {
  LayoutRequest first = OneMember({MakeTensor("a", 0, {5}), MakeTensor("b", 1, {6})});
  first.members.push_back(MakeMember("opt0_1"));
  const v1::Layout stored = Plan(first);
  LayoutRequest swapped = OneMember({MakeTensor("b", 0, {6}), MakeTensor("a", 1, {5})});
  swapped.members = {MakeMember("opt0_1"), MakeMember("opt0_0")};
  CHECK(FirstDifference(stored, swapped) == "");
  const v1::Layout layout = Plan(swapped, &stored);
  CHECK(layout.SerializeAsString() == stored.SerializeAsString());
  CHECK(MapTensors(layout, swapped) == std::vector<uint32_t>{1, 0});
}

TEST_CASE("Buckets: the same request makes the same layout, bucket size aside", "[store]") {
  const LayoutRequest request = OneMember({MakeTensor("a", 0, {70}), MakeTensor("b", 0, {250})});
  const v1::Layout stored = Plan(request);
  LayoutRequest other_size = request;
  other_size.bucket_elements = 7;
  CHECK(Plan(other_size, &stored).SerializeAsString() == stored.SerializeAsString());
}

TEST_CASE("Buckets: 100,000 tensors are planned at once", "[store]") {
  std::vector<v1::Tensor> tensors;
  for (int i = 0; i < 100'000; ++i) {
    tensors.push_back(MakeTensor(absl::StrCat("decoder.layers.", i, ".weight"), 0, {8}));
  }
  const LayoutRequest request = OneMember(std::move(tensors), 0);
  const v1::Layout layout = Plan(request);
  CHECK(layout.buckets_size() == 25);
  CHECK(FirstDifference(layout, request) == "");
}

}  // namespace
}  // namespace moment::store
