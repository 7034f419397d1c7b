#include "daemon/store/names.h"

#include <set>
#include <string>

#include "tests/support/catch.h"

namespace moment::store {
namespace {

TEST_CASE("Names: a plain name stands for itself", "[store]") {
  for (const char* name : {"opt0_0", "model", "run-7.b", "A"}) {
    CHECK(EscapeName(name) == name);
  }
}

TEST_CASE("Names: any other name is one component of at most 255 bytes", "[store]") {
  std::string unicode;
  for (int i = 0; i < 1000; ++i) {
    unicode += "\xe2\x82\xac";  // 1,000 characters of 3 bytes
  }
  for (const std::string& name :
       {std::string("a/b"), std::string("../../etc"), std::string("."), std::string(".."),
        std::string("with space"), std::string("pins"), std::string("commit.0"),
        std::string("layout.x"), std::string("store.json"), std::string("LOCK"), std::string(),
        std::string(1000, 'x'), unicode, std::string("a~b"), std::string("nul\0byte", 8)}) {
    const std::string escaped = EscapeName(name);
    CHECK(escaped.size() <= 255);
    CHECK(escaped != name);
    CHECK(escaped.find('/') == std::string::npos);
    CHECK(escaped.find('\0') == std::string::npos);
    CHECK(escaped[0] != '.');
  }
}

TEST_CASE("Names: different names have different directories", "[store]") {
  std::set<std::string> escaped;
  const std::string base(500, 'y');
  int count = 0;
  for (const std::string& name :
       {std::string("a/b"), std::string("a_b"), std::string("a b"), std::string("a\xc3\xa4"),
        base + "1", base + "2", EscapeName("a/b")}) {
    escaped.insert(EscapeName(name));
    ++count;
  }
  CHECK(escaped.size() == static_cast<size_t>(count));
}

TEST_CASE("Names: the escaped form of a name is part of the format", "[store]") {
  CHECK(EscapeName("a/b") == "a_b~354b81d0032a270248f71e9475860604");
}

TEST_CASE("Names: a store lies below its job, role and rank", "[store]") {
  v1::StoreName name;
  name.set_job("job");
  name.set_role("actor");
  name.set_rank(12);
  CHECK(StoreDirectory("/state", name) == "/state/jobs/job/actor/rank00012");
}

TEST_CASE("Names: bucket files are recognised only in the form that they are given", "[store]") {
  const auto numbers = ParseBucketFileName(BucketFileName(3, 17));
  REQUIRE(numbers.has_value());
  CHECK(numbers->bucket == 3);
  CHECK(numbers->file == 17);
  for (const char* name : {"bucket3.17.safetensors", "bucket00003.017.safetensors",
                           "bucket00003.safetensors", "bucket00003.17.safetensors.tmp",
                           "bucket00003.-1.safetensors", "xbucket00003.17.safetensors", ""}) {
    CHECK(!ParseBucketFileName(name).has_value());
  }
}

TEST_CASE("Names: a pin's links are recognised only in the form that they are given", "[store]") {
  CHECK(PinDirectory("/store", "ab") == "/store/pins/ab");
  CHECK(PinnedFileName(3) == "bucket00003.safetensors");
  CHECK(IsPinnedFileName("bucket00003.safetensors"));
  for (const char* name : {"bucket3.safetensors", "bucket00003.17.safetensors",
                           "bucket00003.safetensors.tmp", "bucket-0003.safetensors", ""}) {
    CHECK(!IsPinnedFileName(name));
  }
}

TEST_CASE("Names: layout files are recognised only in the form that they are given", "[store]") {
  CHECK(ParseLayoutFileName(LayoutFileName(0xabc)) == 0xabc);
  CHECK(!ParseLayoutFileName("layout.abc.json").has_value());
  CHECK(!ParseLayoutFileName("layout.0000000000000ABC.json").has_value());
}

}  // namespace
}  // namespace moment::store
