#include "daemon/store/commit_record.h"
#include "daemon/store/inspect.h"
#include "tests/store/opened_store.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

bool Says(const absl::Status& status, const std::string& text) {
  INFO(status.ToString());
  return status.message().find(text) != absl::string_view::npos;
}

// Every path below a directory, directories first.
std::vector<std::string> Tree(io::FileSystem& files, const std::string& directory) {
  std::vector<std::string> found;
  const auto names = files.List(directory);
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    const std::string path = Join(directory, name);
    found.push_back(path);
    if (files.Stat(path)->directory) {
      for (std::string& below : Tree(files, path)) {
        found.push_back(std::move(below));
      }
    }
  }
  return found;
}

TEST_CASE("Open: existing state without a choice is an error with its sequence and age",
          "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open(SmallStore(v1::RESUME_UNSPECIFIED)).ok());
  REQUIRE(opened.driver().RefreshAndStep(3).ok());
  const absl::Status status = opened.Open(SmallStore(v1::RESUME_UNSPECIFIED));
  CHECK(absl::IsAlreadyExists(status));
  CHECK(Says(
      status,
      "job 'job', role 'model', rank 0 has state of sequence 3, committed less than a second ago"));
}

TEST_CASE("Open: an empty store is no state", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  CHECK(absl::IsNotFound(opened.Open(SmallStore(v1::RESUME_MUST))));
  CHECK(opened.Open(SmallStore(v1::RESUME_UNSPECIFIED)).ok());
}

TEST_CASE("Open: resume=must without state makes nothing", "[store]") {
  OpenedStore opened;
  CHECK(absl::IsNotFound(opened.Open(SmallStore(v1::RESUME_MUST))));
  CHECK(opened.disk.operations() == 0);
}

TEST_CASE("Open: resume=never keeps what there is until the first filling is committed",
          "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.driver().RefreshAndStep(4).ok());
  REQUIRE(opened.Open(SmallStore(v1::RESUME_NEVER)).ok());
  CHECK(opened.store->newest()->sequence == 4);
  const auto expected = opened.driver().RefreshAndStep(0);
  REQUIRE(expected.ok());
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.store->live().size() == 1);
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), *expected) == "");
}

TEST_CASE("Open: another layout is refused with the first difference, nothing is changed",
          "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.driver().RefreshAndStep(1).ok());
  const uint64_t operations = opened.disk.operations();
  OpenParameters other = SmallStore();
  other.tensors[0].set_shape(1, 101);
  const absl::Status status = opened.Open(other);
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Says(status,
             "tensor 'weight' of member 'opt0_0' has shape [20, 100] in the store, "
             "[20, 101] in the request"));
  CHECK(opened.disk.operations() == operations);
  CHECK(opened.Open().ok());
}

TEST_CASE("Open: an empty store takes another layout", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  OpenParameters other = SmallStore();
  other.tensors[0].set_shape(1, 300);
  REQUIRE(opened.Open(other).ok());
  CHECK(opened.store->layout()->parameters() == 6040);
  CHECK(opened.driver().RefreshAndStep(1).ok());
}

TEST_CASE("Open: a store belongs to the uid that made it", "[store]") {
  OpenedStore opened;
  OpenParameters parameters = SmallStore();
  parameters.owner_uid = 1000;
  REQUIRE(opened.Open(parameters).ok());
  parameters.owner_uid = 1001;
  CHECK(absl::IsPermissionDenied(opened.Open(parameters)));
  parameters.owner_uid = 0;
  CHECK(opened.Open(parameters).ok());
}

TEST_CASE("Open: a directory that belongs to another name is refused", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  const std::string path = opened.PathOf(kStoreFileName);
  opened.disk.Corrupt(path, [](std::vector<std::byte>& bytes) {
    std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    text.replace(text.find("\"model\""), 7, "\"actor\"");
    std::transform(text.begin(), text.end(), bytes.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
  });
  const absl::Status status = opened.Open();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(Says(status, "belongs to job 'job', role 'actor', rank 0"));
}

TEST_CASE("Open: names of any text have a directory and are kept as they are", "[store]") {
  OpenedStore opened;
  std::string unicode;
  for (int i = 0; i < 1000; ++i) {
    unicode += "\xc3\xa4";
  }
  for (const std::string& name :
       {std::string("a/b/../c"), std::string("two words"), unicode, std::string("..")}) {
    OpenParameters parameters = SmallStore();
    parameters.name.set_job(name);
    parameters.name.set_role(name);
    parameters.members[0].set_name(name);
    parameters.tensors[0].set_name(name);
    const auto store = Store::Open(opened.environment, parameters);
    REQUIRE(store.ok());
    REQUIRE(StoreDriver(opened.disk.engine(), **store).RefreshAndStep(1).ok());
    const auto read = ReadStore(opened.disk.files(), opened.disk.engine(), (*store)->directory());
    REQUIRE(read.ok());
    CHECK(read->store().name().job() == name);
    CHECK(read->layout().members(0).name() == name);
    REQUIRE(Store::Open(opened.environment, parameters).ok());
  }
  for (const std::string& name : {std::string(), std::string("\xff"), std::string(4097, 'x')}) {
    OpenParameters parameters = SmallStore();
    parameters.name.set_job(name);
    CHECK(absl::IsInvalidArgument(Store::Open(opened.environment, parameters).status()));
  }
}

TEST_CASE("Open: a rank without tensors, or with empty ones alone, steps like any other",
          "[store]") {
  for (const bool some : {false, true}) {
    OpenedStore opened;
    OpenParameters parameters = SmallStore();
    parameters.tensors.clear();
    if (some) {
      parameters.tensors = {MakeTensor("none", 0, {0}), MakeTensor("nothing", 1, {4, 0})};
    }
    REQUIRE(opened.Open(parameters).ok());
    const auto expected = opened.driver().RefreshAndStep(3);
    REQUIRE(expected.ok());
    REQUIRE(opened.Open(parameters).ok());
    CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), *expected) == "");
  }
}

TEST_CASE("Open: 100,000 tensors open, commit and open again", "[store]") {
  OpenedStore opened;
  OpenParameters parameters = SmallStore();
  parameters.tensors.clear();
  for (int i = 0; i < 100'000; ++i) {
    parameters.tensors.push_back(MakeTensor("layers." + std::to_string(i), 0, {1}));
  }
  parameters.bucket_elements = kMaxBucketElements;
  REQUIRE(opened.Open(parameters).ok());
  CHECK(opened.store->layout()->buckets().size() == 25);
  const auto expected = opened.driver().RefreshAndStep(1);
  REQUIRE(expected.ok());
  REQUIRE(opened.Open(parameters).ok());
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), *expected) == "");
  CHECK(opened.store->tensor_index().back() == 99'999);
}

TEST_CASE("Open: on a full disk it is RESOURCE_EXHAUSTED and leaves nothing behind", "[store]") {
  // From almost nothing to almost enough.
  OpenedStore measured;
  REQUIRE(measured.Open().ok());
  const uint64_t enough = measured.store->reserved_bytes() + 8192;
  for (uint64_t capacity = 4096; capacity < enough - 8192; capacity += 20'480) {
    OpenedStore opened({.capacity_bytes = capacity});
    const absl::Status status = opened.Open();
    INFO("capacity " << capacity << ": " << status);
    CHECK(absl::IsResourceExhausted(status));
    CHECK(Tree(opened.disk.files(), kTestStateDirectory) ==
          std::vector<std::string>{"/state/jobs"});
  }
  OpenedStore opened({.capacity_bytes = enough});
  CHECK(opened.Open().ok());
}

TEST_CASE("Open: a full disk leaves the stores beside alone", "[store]") {
  OpenedStore opened({.capacity_bytes = 500'000});
  OpenParameters second = SmallStore();
  second.name.set_rank(1);
  second.tensors[0].set_shape(1, 2000);
  REQUIRE(opened.Open().ok());
  const std::vector<std::string> before = Tree(opened.disk.files(), kTestStateDirectory);
  CHECK(absl::IsResourceExhausted(Store::Open(opened.environment, second).status()));
  CHECK(Tree(opened.disk.files(), kTestStateDirectory) == before);
  CHECK(opened.driver().RefreshAndStep(3).ok());
}

OpenParameters LargerStore() {
  OpenParameters parameters = SmallStore();
  parameters.members.push_back(MakeMember("opt1"));
  parameters.tensors.insert(parameters.tensors.begin(), MakeTensor("first", 2, {9}));
  parameters.tensors.push_back(MakeTensor("last", 0, {1600}));
  return parameters;
}

TEST_CASE("Open: a superset adds buckets and names what no commit names yet", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  const auto expected = opened.driver().RefreshAndStep(3);
  REQUIRE(expected.ok());
  REQUIRE(opened.Open(LargerStore()).ok());
  CHECK(opened.store->layout()->buckets().size() == 6);
  CHECK(opened.store->tensor_index() == std::vector<uint32_t>{4, 0, 1, 2, 3, 5});
  CHECK(opened.store->added_tensors() == std::vector<uint32_t>{4, 5});
  CHECK(opened.store->newest()->layout->buckets().size() == 3);
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), *expected) == "");
}

TEST_CASE("Open: a superset that was never refreshed may be left again", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.driver().RefreshAndStep(3).ok());
  opened.store.reset();
  const std::vector<std::string> before = Tree(opened.disk.files(), kTestStateDirectory);
  REQUIRE(opened.Open(LargerStore()).ok());
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->added_tensors().empty());
  CHECK(Tree(opened.disk.files(), kTestStateDirectory) == before);
}

TEST_CASE("Open: a superset without room leaves the store as it was", "[store]") {
  OpenedStore opened({.capacity_bytes = 400'000});
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.driver().RefreshAndStep(3).ok());
  opened.store.reset();
  const std::vector<std::string> before = Tree(opened.disk.files(), kTestStateDirectory);
  OpenParameters larger = LargerStore();
  larger.tensors.back().set_shape(0, 16'000);
  CHECK(absl::IsResourceExhausted(opened.Open(larger)));
  CHECK(Tree(opened.disk.files(), kTestStateDirectory) == before);
  CHECK(opened.Open().ok());
}

TEST_CASE("Open: records move to grown commit files when they need more room", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  const auto expected = opened.driver().RefreshAndStep(5);
  REQUIRE(expected.ok());
  const auto live = opened.store->live();
  OpenParameters parameters = SmallStore();
  parameters.blob_limit_bytes = 100'000;
  REQUIRE(opened.Open(parameters).ok());
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), *expected) == "");
  REQUIRE(opened.store->live().size() == live.size());
  for (int i = 0; i < kCommitFiles; ++i) {
    CHECK(opened.disk.files().Stat(opened.PathOf(CommitFileName(i)))->size_bytes ==
          2 * RecordRoom(opened.store->layout()->proto(), 100'000));
  }
  REQUIRE(opened.store->Drop(6).ok());
  auto step = opened.driver().BeginStepBehind(*opened.store->newest(), *expected, 6, true);
  REQUIRE(step.ok());
  REQUIRE(opened.driver().WriteAll(*step).ok());
  step->state.blob = std::string(100'000, 'b');
  CHECK(opened.store->Commit(std::move(step->mutation), step->state).ok());
}

TEST_CASE("Open: a smaller blob limit leaves the commit files as they are", "[store]") {
  OpenedStore opened;
  OpenParameters parameters = SmallStore();
  parameters.blob_limit_bytes = 100'000;
  REQUIRE(opened.Open(parameters).ok());
  REQUIRE(opened.driver().RefreshAndStep(1).ok());
  const uint64_t reserved = opened.store->reserved_bytes();
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->reserved_bytes() == reserved);
}

TEST_CASE("Open: a blob limit above 16 MiB is refused", "[store]") {
  OpenedStore opened;
  OpenParameters parameters = SmallStore();
  parameters.blob_limit_bytes = kMaxBlobBytes + 1;
  CHECK(absl::IsInvalidArgument(opened.Open(parameters)));
}

TEST_CASE("Open: another commit_every is told", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.driver().RefreshAndStep(1).ok());
  OpenParameters parameters = SmallStore();
  parameters.commit_every = 3;
  REQUIRE(opened.Open(parameters).ok());
  REQUIRE(opened.store->warnings().size() == 1);
  CHECK(opened.store->warnings()[0].find("commit_every was 1, it is 3") != std::string::npos);
}

TEST_CASE("Open: opening the same store again and again takes no more disk", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.driver().RefreshAndStep(4).ok());
  const uint64_t reserved = opened.store->reserved_bytes();
  opened.store.reset();
  const std::vector<std::string> before = Tree(opened.disk.files(), kTestStateDirectory);
  for (int i = 0; i < 5; ++i) {
    REQUIRE(opened.Open().ok());
    CHECK(opened.store->reserved_bytes() == reserved);
  }
  CHECK(Tree(opened.disk.files(), kTestStateDirectory) == before);
}

}  // namespace
}  // namespace moment::store
