#include "daemon/store/file_table.h"

#include "tests/support/catch.h"

namespace moment::store {
namespace {

std::shared_ptr<FileTable> TableOf(std::vector<FileTable::FileState> files) {
  auto table = std::make_shared<FileTable>(1);
  for (FileTable::FileState& file : files) {
    table->Add(0, std::move(file));
  }
  return table;
}

RecordSummary Naming(uint32_t file) {
  RecordSummary record;
  record.buckets.emplace_back();
  record.buckets.back().set_file(file);
  return record;
}

TEST_CASE("File table: a file is taken once, and again after its lease ended", "[store]") {
  const auto table = TableOf({{.number = 4}});
  auto lease = table->Take(0, 1);
  REQUIRE(lease.has_value());
  CHECK(lease->number == 4);
  CHECK(table->IsLeased(0, 4, 1));
  CHECK(!table->IsLeased(0, 4, 2));
  CHECK(!table->Take(0, 2).has_value());
  lease.reset();
  CHECK(table->Take(0, 2).has_value());
}

TEST_CASE("File table: files that records name or that were pinned are not free", "[store]") {
  const auto table = TableOf({{.number = 1}, {.number = 2, .writable = false}, {.number = 3}});
  table->SetRecords({Naming(1)});
  const auto lease = table->Take(0, 1);
  REQUIRE(lease.has_value());
  CHECK(lease->number == 3);
  CHECK(!table->Take(0, 1).has_value());
  table->SetRecords({});
  CHECK(table->Take(0, 1)->number == 1);
}

TEST_CASE("File table: a lease that a record ended gives nothing back later", "[store]") {
  const auto table = TableOf({{.number = 1}});
  auto first = table->Take(0, 1);
  table->SetRecords({Naming(1)});
  table->EndLease(0, 1);
  table->SetRecords({});
  auto second = table->Take(0, 2);
  REQUIRE(second.has_value());
  first.reset();  // the late end of an image that was committed and dropped
  CHECK(table->IsLeased(0, 1, 2));
  CHECK(!table->Take(0, 3).has_value());
}

TEST_CASE("File table: a file that is taken over is free when the last state lets it go",
          "[store]") {
  const auto table = TableOf({{.number = 1}});
  table->SetRecords({Naming(1)});
  auto first = table->TakeOver(0, 1, 7);
  auto second = table->TakeOver(0, 1, 7);
  table->SetRecords({});
  CHECK(table->IsTakenOver(0, 1, 7));
  CHECK(!table->IsTakenOver(0, 1, 8));
  first.reset();
  CHECK(table->Unused(0).empty());
  CHECK(!table->Take(0, 9).has_value());
  second.reset();
  CHECK(table->Take(0, 9)->number == 1);
  CHECK(table->TakeOver(0, 4, 7) == nullptr);
}

TEST_CASE("File table: fresh files are taken first and are fresh once", "[store]") {
  const auto table = TableOf({{.number = 1}, {.number = 2, .fresh = true}});
  auto lease = table->Take(0, 1);
  CHECK(lease->number == 2);
  CHECK(lease->fresh);
  lease.reset();
  CHECK(table->Take(0, 1)->number == 1);
  CHECK(!table->Take(0, 1)->fresh);
}

TEST_CASE("File table: numbers are never given twice", "[store]") {
  const auto table = TableOf({{.number = 7}});
  CHECK(table->ReserveNumber(0) == 8);
  table->Remove(0, 7);
  CHECK(table->ReserveNumber(0) == 9);
}

TEST_CASE("File table: a lease may end after the table's owner is gone", "[store]") {
  auto table = TableOf({{.number = 1}});
  auto lease = table->Take(0, 1);
  table.reset();
  lease.reset();
  SUCCEED();
}

}  // namespace
}  // namespace moment::store
