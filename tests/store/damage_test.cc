#include "daemon/store/inspect.h"

#include <vector>

#include "tests/store/opened_store.h"
#include "tests/support/catch.h"

// What a damaged store answers: refused with file and offset, or repaired and told; other stores of
// the same directory work on.
namespace moment::store {
namespace {

// A file of bucket 0 other than this one.
std::string OtherFile(OpenedStore& opened, const std::string& path) {
  const auto names = opened.disk.files().List(ParentOf(path));
  REQUIRE(names.ok());
  for (const std::string& name : *names) {
    if (name != BaseOf(path) && ParseBucketFileName(name)->bucket == 0) {
      return Join(ParentOf(path), name);
    }
  }
  FAIL("no file beside " << path);
  return "";
}

struct SteppedStore : OpenedStore {
  SteppedStore() {
    REQUIRE(Open().ok());
    auto stepped = driver().RefreshAndStep(4);
    REQUIRE(stepped.ok());
    expected = *stepped;
  }

  // DATA_LOSS with this path and offset, and nothing of the store is changed; the store beside
  // still opens.
  void RequireLoss(const std::string& path, uint64_t offset) {
    const uint64_t operations = disk.operations();
    const absl::Status status = Open();
    INFO(status.ToString());
    CHECK(absl::IsDataLoss(status));
    CHECK(status.message().find(path + " at offset " + std::to_string(offset) + ":") !=
          absl::string_view::npos);
    CHECK(disk.operations() == operations);
    OpenParameters other = SmallStore();
    other.name.set_rank(1);
    CHECK(Store::Open(environment, other).ok());
  }

  // The commit file whose record has this id.
  std::string RecordFile(uint64_t id) {
    for (int i = 0; i < kCommitFiles; ++i) {
      const std::string path = PathOf(CommitFileName(i));
      const auto view = DescribeCommitFile(disk.files(), disk.engine(), path);
      if (view.ok() && view->record.id() == id) {
        return path;
      }
    }
    FAIL("no record of id " << id);
    return "";
  }

  const BucketGeometry& Geometry(size_t bucket) const { return store->layout()->buckets()[bucket]; }

  ExpectedCommit expected;
};

TEST_CASE("Damage: a bucket file that was cut or emptied is refused", "[store]") {
  for (const uint64_t length : {uint64_t{0}, uint64_t{4096}, uint64_t{12'288}}) {
    SteppedStore opened;
    const std::string path = opened.NewestFile(0);
    opened.Truncate(path, length);
    opened.RequireLoss(path, length);
  }
}

TEST_CASE("Damage: a missing bucket file is refused", "[store]") {
  SteppedStore opened;
  const std::string path = opened.NewestFile(2);
  REQUIRE(opened.disk.files().Unlink(path).ok());
  opened.RequireLoss(path, 0);
}

TEST_CASE("Damage: a flipped bit of a header is refused with its offset", "[store]") {
  SteppedStore opened;
  const std::string path = opened.NewestFile(1);
  opened.FlipBit(path, 77);
  opened.RequireLoss(path, 77);
}

TEST_CASE("Damage: a flipped bit anywhere in a checksum table is refused", "[store]") {
  for (const uint64_t at : std::vector<uint64_t>{0, 8, 12, 16, 32, 40, 48, 64, 72, 80}) {
    SteppedStore opened;
    const std::string path = opened.NewestFile(1);
    const uint64_t table = opened.Geometry(1).checksums_offset;
    opened.FlipBit(path, table + at);
    opened.RequireLoss(path, table);
  }
}

TEST_CASE("Damage: swapped bucket files are refused", "[store]") {
  SteppedStore opened;
  const std::string newest = opened.NewestFile(0);
  const uint64_t offset = opened.Geometry(0).checksums_offset;
  const std::string older = OtherFile(opened, newest);
  const std::vector<std::byte> content = opened.Content(newest);
  opened.Replace(newest, opened.Content(older));
  opened.Replace(older, content);
  opened.RequireLoss(newest, offset);
}

TEST_CASE("Damage: a bucket file of another store is refused", "[store]") {
  SteppedStore opened;
  SteppedStore other;
  const std::string path = opened.NewestFile(0);
  opened.Replace(path, other.Content(other.NewestFile(0)));
  opened.RequireLoss(path, opened.Geometry(0).checksums_offset);
}

TEST_CASE("Damage: an older content of a bucket file is refused", "[store]") {
  SteppedStore opened;
  const std::string path = opened.NewestFile(0);
  const std::vector<std::byte> older = opened.Content(path);
  // Steps on until the same file is the newest again.
  ExpectedCommit expected = opened.expected;
  do {
    const uint64_t sequence = expected.sequence + 1;
    REQUIRE(opened.store->Drop(sequence).ok());
    auto next = opened.driver().BeginStepBehind(*opened.store->newest(), expected, sequence, true);
    REQUIRE(next.ok());
    REQUIRE(opened.driver().WriteAll(*next).ok());
    expected = next->expected;
    REQUIRE(opened.driver().Commit(*next).ok());
  } while (opened.NewestFile(0) != path);
  opened.Replace(path, older);
  opened.RequireLoss(path, opened.Geometry(0).checksums_offset);
}

TEST_CASE("Damage: a missing, cut or changed layout is refused", "[store]") {
  for (int kind = 0; kind < 3; ++kind) {
    SteppedStore opened;
    const std::string path = opened.PathOf(LayoutFileName(opened.store->layout()->digest()));
    if (kind == 0) {
      REQUIRE(opened.disk.files().Unlink(path).ok());
    } else if (kind == 1) {
      opened.Truncate(path, 100);
    } else {
      opened.disk.Corrupt(path, [](std::vector<std::byte>& bytes) {
        std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        bytes[text.find("weight")] = std::byte{'v'};
      });
    }
    opened.RequireLoss(path, 0);
  }
}

TEST_CASE("Damage: a missing or cut commit file is refused", "[store]") {
  SteppedStore opened;
  const std::string path = opened.RecordFile(opened.expected.id);
  SECTION("missing") {
    REQUIRE(opened.disk.files().Unlink(path).ok());
    opened.RequireLoss(path, 0);
  }
  SECTION("empty") {
    opened.Truncate(path, 0);
    opened.RequireLoss(path, 0);
  }
  SECTION("half") {
    const uint64_t half = opened.Content(path).size() / 2;
    opened.Truncate(path, half);
    opened.RequireLoss(path, half);
  }
}

TEST_CASE("Damage: a record of another store is refused", "[store]") {
  SteppedStore opened;
  SteppedStore other;
  const std::string path = opened.RecordFile(opened.expected.id);
  opened.Replace(path, other.Content(other.RecordFile(other.expected.id)));
  opened.RequireLoss(path, 0);
}

TEST_CASE("Damage: one bad copy of a record is told and rewritten", "[store]") {
  for (const bool second : {false, true}) {
    SteppedStore opened;
    const std::string path = opened.RecordFile(opened.expected.id);
    const uint64_t offset = second ? opened.Content(path).size() / 2 : 0;
    opened.FlipBit(path, offset + 70);
    REQUIRE(opened.Open().ok());
    REQUIRE(opened.store->warnings().size() == 1);
    CHECK(opened.store->warnings()[0].find(path + " at offset " + std::to_string(offset)) == 0);
    CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
    REQUIRE(opened.Open().ok());
    CHECK(opened.store->warnings().empty());
  }
}

TEST_CASE("Damage: a record without a whole copy was never acknowledged, and is told", "[store]") {
  SteppedStore opened;
  const std::string path = opened.RecordFile(opened.expected.id);
  opened.FlipBit(path, 70);
  opened.FlipBit(path, opened.Content(path).size() / 2 + 70);
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->newest()->sequence == 3);
  REQUIRE(opened.store->warnings().size() == 1);
  CHECK(opened.store->warnings()[0].find("never acknowledged") != std::string::npos);
}

// Both copies of the record of this id.
void FlipRecord(SteppedStore& opened, uint64_t id) {
  const std::string path = opened.RecordFile(id);
  opened.FlipBit(path, 70);
  opened.FlipBit(path, opened.Content(path).size() / 2 + 70);
}

TEST_CASE("Damage: a store all of whose records are damaged is refused, not taken for new",
          "[store]") {
  SteppedStore opened;
  const std::string path = opened.PathOf(CommitFileName(0));
  for (const v1::CommitInfo& commit : opened.store->live()) {
    FlipRecord(opened, commit.id());
  }
  opened.RequireLoss(path, 0);
  for (const v1::Resume resume : {v1::RESUME_UNSPECIFIED, v1::RESUME_MUST}) {
    CHECK(absl::IsDataLoss(opened.Open(SmallStore(resume))));
  }
  CHECK(absl::IsDataLoss(ReadStore(opened.disk.files(), opened.disk.engine(),
                                   StoreDirectory(kTestStateDirectory, SmallStore().name))
                             .status()));
  REQUIRE(opened.Open(SmallStore(v1::RESUME_NEVER)).ok());
  CHECK(opened.store->newest() == nullptr);
  CHECK(opened.store->warnings().back().find("starts over") != std::string::npos);
}

TEST_CASE("Damage: the only record of a store is damaged from its first acknowledgement on",
          "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.driver().RefreshAndStep(0).ok());
  const std::string path = opened.PathOf(CommitFileName(0));
  SECTION("flipped") {
    opened.FlipBit(path, 70);
    opened.FlipBit(path, opened.Content(path).size() / 2 + 70);
  }
  SECTION("overwritten with zeros") {
    opened.Replace(path, std::vector<std::byte>(opened.Content(path).size()));
  }
  const absl::Status status = opened.Open();
  INFO(status);
  CHECK(absl::IsDataLoss(status));
  CHECK(status.message().find(path + " at offset 0:") == 0);
  CHECK(status.message().find("resume=never") != absl::string_view::npos);
}

TEST_CASE("Damage: a first record that was torn was never acknowledged, and is told", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  const std::string path = opened.PathOf(CommitFileName(0));
  opened.disk.Corrupt(path, [](std::vector<std::byte>& bytes) { bytes[600] = std::byte{7}; });
  opened.disk.Corrupt(path, [](std::vector<std::byte>& bytes) { bytes[0] = std::byte{'M'}; });
  CHECK(absl::IsNotFound(opened.Open(SmallStore(v1::RESUME_MUST))));
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->newest() == nullptr);
  REQUIRE(opened.store->warnings().size() == 1);
  CHECK(opened.store->warnings()[0].find("never acknowledged") != std::string::npos);
}

TEST_CASE("Damage: an older record whose files were written since is refused", "[store]") {
  SteppedStore opened;
  const std::string path = opened.RecordFile(opened.expected.id);
  const std::string first = opened.NewestFile(0);
  const std::vector<std::byte> record = opened.Content(path);
  // Three steps more: the files of that record hold others.
  ExpectedCommit expected = opened.expected;
  for (uint64_t sequence = 5; sequence <= 7; ++sequence) {
    REQUIRE(opened.store->Drop(sequence).ok());
    auto next = opened.driver().BeginStepBehind(*opened.store->newest(), expected, sequence, true);
    REQUIRE(next.ok());
    REQUIRE(opened.driver().WriteAll(*next).ok());
    expected = next->expected;
    REQUIRE(opened.driver().Commit(*next).ok());
  }
  for (int i = 0; i < kCommitFiles; ++i) {
    opened.Replace(opened.PathOf(CommitFileName(i)), record);
  }
  opened.RequireLoss(first, opened.Geometry(0).checksums_offset);
}

TEST_CASE("Damage: a damaged store.json is refused", "[store]") {
  SteppedStore opened;
  opened.Truncate(opened.PathOf(kStoreFileName), 10);
  opened.RequireLoss(opened.PathOf(kStoreFileName), 0);
}

TEST_CASE("Damage: an explicit rollback opens behind a damaged commit", "[store]") {
  SteppedStore opened;
  opened.Truncate(opened.NewestFile(0), 0);
  REQUIRE(absl::IsDataLoss(opened.Open()));
  OpenParameters parameters = SmallStore();
  parameters.rollback_to = 3;
  REQUIRE(opened.Open(parameters).ok());
  CHECK(opened.store->newest()->sequence == 3);
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->newest()->sequence == 3);
  CHECK(opened.store->newest()->due);
}

TEST_CASE("Damage: a rollback to a damaged commit is refused and leaves the store open",
          "[store]") {
  SteppedStore opened;
  const auto described =
      ReadStore(opened.disk.files(), opened.disk.engine(), opened.store->directory());
  REQUIRE(described->commits(1).sequence() == 3);
  const uint32_t file = described->commits(1).buckets(0).file();
  const std::string path = Join(ParentOf(opened.NewestFile(0)), BucketFileName(0, file));
  opened.FlipBit(path, 9);
  CHECK(absl::IsDataLoss(opened.store->Rollback(3).status()));
  CHECK(opened.store->newest()->sequence == 4);
  CHECK(opened.store->Rollback(4).ok());
}

TEST_CASE("Damage: starting over does not need the damaged commit", "[store]") {
  SteppedStore opened;
  opened.Truncate(opened.NewestFile(0), 4096);
  REQUIRE(opened.Open(SmallStore(v1::RESUME_NEVER)).ok());
  CHECK(opened.store->newest() == nullptr);
  CHECK(opened.store->warnings().size() == 1);
  const auto expected = opened.driver().RefreshAndStep(1);
  REQUIRE(expected.ok());
  REQUIRE(opened.Open().ok());
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), *expected) == "");
}

TEST_CASE("Damage: a file that no commit names is repaired and told", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.driver().RefreshAndStep(0).ok());
  const std::string used = opened.NewestFile(0);
  const std::string unused = OtherFile(opened, used);
  opened.Truncate(unused, 5000);
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.store->warnings().size() == 1);
  CHECK(opened.store->warnings()[0].find(unused + " at offset 5000") == 0);
  CHECK(opened.driver().RefreshAndStep(4).ok());
}

}  // namespace
}  // namespace moment::store
