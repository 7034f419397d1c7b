#include "daemon/store/store.h"

#include "tests/store/opened_store.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

TEST_CASE("Store: an opened store is empty until the first commit", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->newest() == nullptr);
  CHECK(opened.store->live().empty());
  CHECK(opened.store->added_tensors().empty());
  CHECK(opened.store->layout()->buckets().size() == 3);
  CHECK(opened.store->tensor_index() == std::vector<uint32_t>{0, 1, 2, 3});
}

TEST_CASE("Store: what was committed is there when it is opened again", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  const auto expected = StoreDriver(opened.disk.engine(), *opened.store).RefreshAndStep(5);
  REQUIRE(expected.ok());
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.store->newest() != nullptr);
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), *expected) == "");
  CHECK(opened.store->live().size() == 3);
  CHECK(opened.store->warnings().empty());
}

TEST_CASE("Store: rollback makes an older live commit the newest", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  StoreDriver driver(opened.disk.engine(), *opened.store);
  REQUIRE(driver.RefreshAndStep(5).ok());
  const auto state = opened.store->Rollback(4);
  REQUIRE(state.ok());
  CHECK((*state)->sequence == 4);
  CHECK((*state)->due);
  CHECK((*state)->id == 7);
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->newest()->sequence == 4);
}

}  // namespace
}  // namespace moment::store
