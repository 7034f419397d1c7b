#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "daemon/store/pin_files.h"
#include "tests/store/stepped_store.h"
#include "tests/store/watched_file_system.h"

namespace moment::store {
namespace {

PinParameters ById(const std::string& id) {
  PinParameters parameters;
  parameters.id = id;
  parameters.owner.set_session("aa");
  parameters.owner.set_pid(42);
  parameters.owner.set_uid(7);
  parameters.owner.set_program("train.py");
  return parameters;
}

bool Says(const absl::Status& status, const std::string& text) {
  INFO(status.ToString());
  return status.message().find(text) != absl::string_view::npos;
}

struct PinnedStore : SteppedStore {
  explicit PinnedStore(uint64_t steps = 4, const io::SimulatedFaults& faults = {})
      : SteppedStore(steps, faults) {}

  absl::Status Pin(const std::string& id) { return store->Pin(ById(id)).status(); }
  std::string PinnedPath(const std::string& id, size_t bucket) const {
    const Layout& layout = *store->layout();
    return PinnedFilePath(store->directory(), id, layout.proto(), layout.buckets()[bucket]);
  }
  std::vector<std::vector<std::byte>> PinnedContent(const std::string& id) {
    std::vector<std::vector<std::byte>> content;
    for (size_t bucket = 0; bucket < store->layout()->buckets().size(); ++bucket) {
      content.push_back(Content(PinnedPath(id, bucket)));
    }
    return content;
  }
  std::vector<std::vector<std::byte>> NewestContent() {
    std::vector<std::vector<std::byte>> content;
    for (size_t bucket = 0; bucket < store->layout()->buckets().size(); ++bucket) {
      content.push_back(Content(NewestFile(bucket)));
    }
    return content;
  }
  uint64_t FreeBytes() { return disk.files().FreeSpace("/state")->free_bytes; }
  // Names below a directory of the store.
  std::vector<std::string> Tree(const std::string& below) {
    std::vector<std::string> found;
    const auto names = disk.files().List(below);
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      const std::string path = Join(below, name);
      found.push_back(path);
      if (disk.files().Stat(path)->directory) {
        const std::vector<std::string> inner = Tree(path);
        found.insert(found.end(), inner.begin(), inner.end());
      }
    }
    return found;
  }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) {
      REQUIRE(Step().ok());
    }
  }
};

TEST_CASE("Pin: the pinned files keep their bytes while steps go on", "[store]") {
  PinnedStore opened;
  const auto content = opened.NewestContent();
  const auto pin = opened.store->Pin(ById("one"));
  REQUIRE(pin.ok());
  CHECK((*pin)->commit.sequence() == 4);
  CHECK((*pin)->t == std::vector<uint64_t>{4, 4, 4, 4});
  CHECK((*pin)->files.size() == 3);
  opened.Steps(7);
  REQUIRE(opened.store->Sweep().ok());
  opened.Steps(1);
  CHECK((opened.PinnedContent("one") == content));
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
}

TEST_CASE("Pin: its manifest says whose it is and what it holds", "[store]") {
  PinnedStore opened;
  REQUIRE(opened.Pin("one").ok());
  const auto manifest =
      LoadPin(opened.disk.files(), opened.disk.engine(), opened.store->directory(), "one");
  REQUIRE(manifest.ok());
  CHECK(manifest->id() == "one");
  CHECK(manifest->owner().pid() == 42);
  CHECK(manifest->owner().uid() == 7);
  CHECK(manifest->owner().program() == "train.py");
  CHECK(manifest->owner().session() == "aa");
  CHECK(manifest->unix_time_ns() > 0);
  CHECK(manifest->commit().sequence() == 4);
  CHECK(manifest->commit().id() == opened.store->newest()->id);
  CHECK(manifest->commit().blob().empty());
  CHECK(manifest->commit().steps(0).t() == 4);
  CHECK(manifest->commit().buckets_size() == 3);
}

TEST_CASE("Pin: a pinned file is read-only and has a link in the pin", "[store]") {
  PinnedStore opened;
  REQUIRE(opened.Pin("one").ok());
  for (size_t bucket = 0; bucket < 3; ++bucket) {
    const auto info = opened.disk.files().Stat(opened.NewestFile(bucket));
    REQUIRE(info.ok());
    CHECK(info->permissions == 0440);
    CHECK(info->links == 2);
    CHECK(info->inode == opened.disk.files().Stat(opened.PinnedPath("one", bucket))->inode);
  }
}

TEST_CASE("Pin: steps make, rename, remove and allocate nothing while pins exist", "[store]") {
  PinnedStore opened;
  WatchedFileSystem watched(opened.disk.files());
  opened.environment.files = &watched;
  REQUIRE(opened.Open().ok());
  REQUIRE(opened.Pin("one").ok());
  opened.Steps(1);
  REQUIRE(opened.Pin("two").ok());
  const uint64_t changes = watched.changes();
  const uint64_t free_bytes = opened.FreeBytes();
  opened.Steps(3);
  REQUIRE(opened.Step({true, false, true}).ok());
  REQUIRE(opened.store->Unpin("one").ok());
  opened.Steps(4);
  CHECK(watched.changes() == changes);
  CHECK(opened.FreeBytes() == free_bytes);
}

TEST_CASE("Pin: a full disk does not stop steps that follow a pin", "[store]") {
  PinnedStore opened(2, {.capacity_bytes = 600'000});
  REQUIRE(opened.Pin("one").ok());
  opened.FillDisk();
  opened.Steps(6);
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
}

TEST_CASE("Pin: without room for one more image it is refused and leaves nothing", "[store]") {
  PinnedStore opened(4, {.capacity_bytes = 330'000});
  opened.FillDisk();
  const auto before = opened.Tree(opened.store->directory());
  const absl::Status status = opened.Pin("one");
  CHECK(absl::IsResourceExhausted(status));
  CHECK(Says(status, "pin one: "));
  auto after = opened.Tree(opened.store->directory());
  CHECK(after == before);
  CHECK(opened.store->pins().empty());
  CHECK(opened.disk.files().Stat(opened.NewestFile(0))->permissions == 0640);
  opened.Steps(3);
}

TEST_CASE("Pin: whatever fails in its making, nothing of it stays", "[store]") {
  for (uint64_t n = 1;; ++n) {
    PinnedStore opened;
    WatchedFileSystem watched(opened.disk.files());
    opened.environment.files = &watched;
    REQUIRE(opened.Open().ok());
    const uint64_t before = watched.changes();
    const uint64_t free_bytes = opened.FreeBytes();
    watched.FailChange(n);
    const absl::Status status = opened.Pin("one");
    if (status.ok()) {
      CHECK(n > 20);
      CHECK(watched.changes() - before < n);
      break;
    }
    INFO("change " << n << ": " << status.ToString());
    CHECK(absl::IsInternal(status));
    watched.FailChange(0);
    CHECK(opened.store->pins().empty());
    CHECK(opened.Tree(PinDirectory(opened.store->directory(), "one")).empty());
    CHECK(opened.Pin("two").ok());
    REQUIRE(opened.store->Unpin("two").ok());
    opened.Steps(3);
    REQUIRE(opened.store->Sweep().ok());
    CHECK(opened.FileCount(0) == 3);
    CHECK(opened.FreeBytes() == free_bytes);
    CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
  }
}

TEST_CASE("Pin: what a dropped pin held is free when its commit is", "[store]") {
  PinnedStore opened;
  const uint64_t base = opened.FreeBytes();
  REQUIRE(opened.Pin("one").ok());
  CHECK(opened.FreeBytes() < base);
  REQUIRE(opened.store->Unpin("one").ok());
  CHECK(opened.store->wants_sweep());
  REQUIRE(opened.store->Sweep().ok());
  CHECK(!opened.store->wants_sweep());
  CHECK(opened.Tree(PinsDirectory(opened.store->directory())).empty());
  CHECK(opened.FileCount(0) == 4);  // a record names the file, which is not written again
  opened.Steps(3);
  CHECK(opened.store->wants_sweep());
  REQUIRE(opened.store->Sweep().ok());
  CHECK(opened.FileCount(0) == 3);
  CHECK(opened.FreeBytes() == base);
}

TEST_CASE("Pin: the name of a pinned file goes when no record has it, the pin stays", "[store]") {
  PinnedStore opened;
  const std::string name = opened.NewestFile(0);
  const auto content = opened.NewestContent();
  REQUIRE(opened.Pin("one").ok());
  const auto pin = opened.store->pins().front();
  CHECK(opened.store->HeldBytes(*pin) == 0);
  opened.Steps(3);
  REQUIRE(opened.store->Sweep().ok());
  CHECK(opened.store->HeldBytes(*pin) == pin->size_bytes);
  CHECK(absl::IsNotFound(opened.disk.files().Stat(name).status()));
  CHECK((opened.PinnedContent("one") == content));
  CHECK(opened.FileCount(0) == 3);
}

TEST_CASE("Pin: two hundred pins one after the other hold no more than one", "[store]") {
  PinnedStore opened(4, {.capacity_bytes = 700'000});
  const uint64_t base = opened.FreeBytes();
  for (int i = 0; i < 200; ++i) {
    REQUIRE(opened.Pin("again").ok());
    opened.Steps(1);
    REQUIRE(opened.store->Unpin("again").ok());
    if (i % 3 == 0) {
      REQUIRE(opened.store->Sweep().ok());
    }
  }
  opened.Steps(3);
  REQUIRE(opened.store->Sweep().ok());
  CHECK(opened.FreeBytes() == base);
  CHECK(opened.FileCount(0) == 3);
}

TEST_CASE("Pin: what a dropped pin still holds makes room for the next", "[store]") {
  PinnedStore opened(4, {.capacity_bytes = 420'000});
  REQUIRE(opened.Pin("one").ok());
  opened.Steps(3);
  REQUIRE(absl::IsResourceExhausted(opened.Pin("two")));
  REQUIRE(opened.store->Unpin("one").ok());
  CHECK(opened.store->wants_sweep());
  CHECK(opened.Pin("two").ok());
}

TEST_CASE("Pin: pins and sweeps of several threads do not disturb each other", "[store]") {
  PinnedStore opened;
  std::atomic<bool> stop = false;
  absl::Status swept;
  std::thread sweeping([&] {
    while (!stop) {
      swept.Update(opened.store->Sweep());
    }
  });
  absl::Status pinned;
  for (int i = 0; i < 300; ++i) {
    const std::string id = absl::StrCat("pin", i);
    pinned.Update(opened.Pin(id));
    pinned.Update(opened.store->Unpin(id));
    if (i % 3 == 0) {
      pinned.Update(opened.Step());
    }
  }
  stop = true;
  sweeping.join();
  swept.Update(opened.store->Sweep());  // what was dropped after the thread's last look
  CHECK(pinned == absl::OkStatus());
  CHECK(swept == absl::OkStatus());
  CHECK(opened.FileCount(0) <= 6);  // three, and those of the three records
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
}

TEST_CASE("Pin: pins of one commit share its files and count as one", "[store]") {
  PinnedStore opened;
  const auto content = opened.NewestContent();
  REQUIRE(opened.Pin("one").ok());
  const uint64_t free_bytes = opened.FreeBytes();
  for (const char* id : {"two", "three", "four"}) {
    REQUIRE(opened.Pin(id).ok());
  }
  CHECK(opened.FreeBytes() + uint64_t{4 * 4096} > free_bytes);  // manifests alone
  CHECK(opened.disk.files().Stat(opened.NewestFile(0))->links == 5);
  opened.Steps(1);
  REQUIRE(opened.Pin("later").ok());
  REQUIRE(opened.store->Unpin("one").ok());
  REQUIRE(opened.store->Sweep().ok());
  opened.Steps(4);
  CHECK((opened.PinnedContent("two") == content));
}

TEST_CASE("Pin: a bucket that steps leave alone is shared by pins of different commits",
          "[store]") {
  PinnedStore opened;
  REQUIRE(opened.Pin("one").ok());
  REQUIRE(opened.Step({false, true, true}).ok());
  REQUIRE(opened.Pin("two").ok());
  CHECK(opened.FileCount(0) == 4);
  CHECK(opened.FileCount(1) == 5);
  const auto content = opened.PinnedContent("two");
  REQUIRE(opened.store->Unpin("one").ok());
  opened.Steps(4);
  REQUIRE(opened.store->Sweep().ok());
  CHECK((opened.PinnedContent("two") == content));
  CHECK(opened.FileCount(0) == 3);
}

TEST_CASE("Pin: more commits than max_pins are refused, naming those that are pinned", "[store]") {
  PinnedStore opened;
  REQUIRE(opened.Pin("one").ok());
  opened.Steps(1);
  REQUIRE(opened.Pin("two").ok());
  opened.Steps(1);
  const absl::Status status = opened.Pin("three");
  CHECK(absl::IsResourceExhausted(status));
  CHECK(Says(status, "max_saves is 2, and as many commits are pinned"));
  CHECK(Says(status, "one of sequence 4, process 42 (train.py)"));
  CHECK(Says(status, "two of sequence 5"));
  REQUIRE(opened.store->Unpin("one").ok());
  CHECK(opened.Pin("three").ok());
  OpenParameters more = SmallStore();
  more.max_pins = 3;
  REQUIRE(opened.Open(more).ok());
  for (const char* id : {"a", "b", "c"}) {
    REQUIRE(opened.Pin(id).ok());
    opened.Steps(1);
  }
  CHECK(absl::IsResourceExhausted(opened.Pin("d")));
}

TEST_CASE("Pin: what cannot be pinned is refused", "[store]") {
  OpenedStore empty;
  REQUIRE(empty.Open().ok());
  CHECK(absl::IsFailedPrecondition(empty.store->Pin(ById("one")).status()));
  PinnedStore opened;
  for (const char* id : {"", "a/b", "..", "a b",
                         "0123456789012345678901234567890123456789"
                         "0123456789012345678901234"}) {
    CHECK(absl::IsInvalidArgument(opened.Pin(id)));
  }
  REQUIRE(opened.Pin("one").ok());
  CHECK(absl::IsAlreadyExists(opened.Pin("one")));
  CHECK(absl::IsNotFound(opened.store->Unpin("two")));
  REQUIRE(opened.store->Unpin("one").ok());
  CHECK(absl::IsNotFound(opened.store->Unpin("one")));
  CHECK(opened.Pin("one").ok());
  opened.disk.FailNext(io::IoOp::kSync, "commit.", absl::InternalError("sync failed"));
  CHECK(!opened.store->Drop(5).ok());
  CHECK(absl::IsFailedPrecondition(opened.Pin("two")));
  CHECK(opened.store->Unpin("one").ok());
  CHECK(opened.store->Sweep().ok());
}

TEST_CASE("Pin: its files are opened a range at a time", "[store]") {
  PinnedStore opened;
  REQUIRE(opened.Pin("one").ok());
  const auto all = opened.store->OpenPinned("one", 0, 64);
  REQUIRE(all.ok());
  REQUIRE(all->size() == 3);
  CHECK((*all)[2]->path() == opened.PinnedPath("one", 2));
  CHECK(opened.store->OpenPinned("one", 2, 64)->size() == 1);
  CHECK(opened.store->OpenPinned("one", 1, 1)->front()->path() == opened.PinnedPath("one", 1));
  CHECK(opened.store->OpenPinned("one", 3, 64)->empty());
  CHECK(absl::IsNotFound(opened.store->OpenPinned("two", 0, 64).status()));
}

TEST_CASE("Pin: Open drops the pins it finds and never writes their files again", "[store]") {
  PinnedStore opened;
  const std::string pinned = opened.NewestFile(0);
  const std::vector<std::byte> content = opened.Content(pinned);
  REQUIRE(opened.Pin("one").ok());
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->pins().empty());
  CHECK(opened.Tree(PinsDirectory(opened.store->directory())).empty());
  CHECK(opened.store->warnings().empty());
  const io::OpenOptions reading = {.mode = io::OpenMode::kRead};
  const auto held = opened.disk.files().Open(pinned, reading);  // as a trainer maps it
  for (int i = 0; i < 6; ++i) {
    REQUIRE(opened.Step().ok());
    CHECK(opened.NewestFile(0) != pinned);
    CHECK((opened.Content(pinned) == content));
  }
  REQUIRE(opened.store->Sweep().ok());
  CHECK(absl::IsNotFound(opened.disk.files().Stat(pinned).status()));
}

TEST_CASE("Pin: Open finishes halves of pins", "[store]") {
  PinnedStore opened;
  REQUIRE(opened.Pin("one").ok());
  const std::string pin = PinDirectory(opened.store->directory(), "one");
  SECTION("without its manifest") {
    REQUIRE(opened.disk.files().Unlink(Join(pin, kManifestFileName)).ok());
  }
  SECTION("without some links") {
    REQUIRE(opened.disk.files().Unlink(opened.PinnedPath("one", 1)).ok());
  }
  SECTION("with the manifest's temporary file") {
    REQUIRE(opened.disk.files()
                .Rename(Join(pin, kManifestFileName), Join(pin, kManifestTemporaryName))
                .ok());
  }
  REQUIRE(opened.Open().ok());
  CHECK(opened.Tree(PinsDirectory(opened.store->directory())).empty());
  opened.Steps(3);
}

TEST_CASE("Pin: what is not of a pin is left alone, and told", "[store]") {
  PinnedStore opened;
  REQUIRE(opened.Pin("one").ok());
  const std::string stranger = Join(PinDirectory(opened.store->directory(), "one"), "notes");
  REQUIRE(opened.disk.files().Open(stranger, {.mode = io::OpenMode::kCreate}).ok());
  SECTION("by Open") {
    REQUIRE(opened.Open().ok());
    REQUIRE(opened.store->warnings().size() == 1);
    CHECK(opened.store->warnings()[0].find("not its files: notes") != std::string::npos);
  }
  SECTION("by a sweep") {
    REQUIRE(opened.store->Unpin("one").ok());
    CHECK(Says(opened.store->Sweep(), "not its files: notes"));
    CHECK(!opened.store->wants_sweep());
  }
  CHECK(opened.disk.files().Stat(stranger).ok());
  CHECK(opened.Tree(PinsDirectory(opened.store->directory())).size() == 2);
}

TEST_CASE("Pin: a store that starts anew drops them", "[store]") {
  PinnedStore opened;
  REQUIRE(opened.Pin("one").ok());
  opened.store.reset();
  for (int i = 0; i < kCommitFiles; ++i) {
    const std::string path = opened.PathOf(CommitFileName(i));
    opened.Replace(path, std::vector<std::byte>(opened.Content(path).size()));
  }
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->newest() == nullptr);
  CHECK(opened.Tree(PinsDirectory(opened.store->directory())).empty());
}

TEST_CASE("Pin: a rollback leaves it alone", "[store]") {
  PinnedStore opened;
  const auto content = opened.NewestContent();
  REQUIRE(opened.Pin("one").ok());
  REQUIRE(opened.store->Rollback(3).ok());
  opened.expected.sequence = 3;
  REQUIRE(opened.store->Sweep().ok());
  CHECK((opened.PinnedContent("one") == content));
}

TEST_CASE("Pin: zero moments of a pinned commit are zeros in its files", "[store]") {
  PinnedStore opened(0);
  REQUIRE(opened.Pin("one").ok());
  for (size_t bucket = 0; bucket < 3; ++bucket) {
    CHECK(opened.store->newest()->images[bucket]->moments_zero());
    const std::vector<std::byte> content = opened.Content(opened.PinnedPath("one", bucket));
    const SegmentGeometry& moments = opened.store->layout()->buckets()[bucket].segments[1];
    const auto first = content.begin() + static_cast<std::ptrdiff_t>(moments.offset);
    const auto last = first + static_cast<std::ptrdiff_t>(moments.length_bytes);
    CHECK(std::all_of(first, last, [](std::byte byte) { return byte == std::byte{0}; }));
  }
}

TEST_CASE("Pin: a manifest that cannot be read is damage, naming it", "[store]") {
  PinnedStore opened;
  REQUIRE(opened.Pin("one").ok());
  const std::string& directory = opened.store->directory();
  const std::string path = Join(PinDirectory(directory, "one"), kManifestFileName);
  const auto load = [&] {
    return LoadPin(opened.disk.files(), opened.disk.engine(), directory, "one").status();
  };
  const auto write = [&](const std::string& text) {
    std::vector<std::byte> bytes(text.size());
    std::transform(text.begin(), text.end(), bytes.begin(),
                   [](char c) { return static_cast<std::byte>(c); });
    opened.Replace(path, bytes);
  };
  opened.Truncate(path, 5);
  CHECK(absl::IsDataLoss(load()));
  CHECK(Says(load(), "manifest.json at offset 0"));
  write("{\"format_version\": 1, \"id\": \"one\"}");
  CHECK(absl::IsDataLoss(load()));
  write("{\"format_version\": 9, \"id\": \"one\"}");
  CHECK(absl::IsFailedPrecondition(load()));
  REQUIRE(opened.disk.files().Unlink(path).ok());
  CHECK(absl::IsNotFound(load()));
}

}  // namespace
}  // namespace moment::store
