#include "daemon/io/simulated_disk.h"

#include <cstring>
#include <set>

#include "daemon/io/io_engine.h"
#include "tests/io/io_test_support.h"
#include "tests/support/catch.h"

namespace moment::io {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kChoices = 200;

// A file of one byte value per block.
base::AlignedBuffer Filled(uint64_t length_bytes, int value) {
  base::AlignedBuffer buffer = ZeroBuffer(length_bytes);
  std::memset(buffer.data(), value, length_bytes);
  return buffer;
}

// "/f" of `blocks` blocks of the value, durable with its name.
std::unique_ptr<File> DurableFile(SimulatedDisk& disk, uint64_t blocks, int value) {
  auto file = MustOpen(disk.files(), "/f", OpenMode::kCreate, true);
  REQUIRE(file->Allocate(blocks * kBlock).ok());
  const base::AlignedBuffer bytes = Filled(blocks * kBlock, value);
  REQUIRE(Write(disk.engine(), *file, 0, bytes.data(), blocks * kBlock).ok());
  REQUIRE(Sync(disk.engine(), *file).ok());
  REQUIRE(disk.files().SyncDirectory("/").ok());
  REQUIRE(disk.unsynced_changes() == 0);
  return file;
}

std::vector<std::byte> Contents(SimulatedDisk& disk, const std::string& path) {
  auto file = MustOpen(disk.files(), path, OpenMode::kRead);
  std::vector<std::byte> bytes(*file->Size());
  REQUIRE(Read(disk.engine(), *file, 0, bytes.data(), bytes.size()).ok());
  return bytes;
}

bool Exists(SimulatedDisk& disk, const std::string& path) { return disk.files().Stat(path).ok(); }

TEST_CASE("SimulatedDisk: an unsynced write is lost or kept, block by block", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 4, 1);
  const base::AlignedBuffer twos = Filled(4 * kBlock, 2);
  REQUIRE(Write(disk.engine(), *file, 0, twos.data(), 4 * kBlock).ok());
  CHECK(disk.unsynced_changes() == 4);
  CHECK(Contents(*disk.AfterCrash(0), "/f")[0] == std::byte{1});
  CHECK(Contents(*disk.AfterCrash(1), "/f")[4 * kBlock - 1] == std::byte{2});
  bool mixed = false;
  for (uint64_t choice = 2; choice < kChoices; ++choice) {
    const auto bytes = Contents(*disk.AfterCrash(choice), "/f");
    mixed = mixed || bytes[0] != bytes[2 * kBlock];
  }
  CHECK(mixed);
}

TEST_CASE("SimulatedDisk: a torn block has whole sectors of the old and the new bytes", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 1, 1);
  const base::AlignedBuffer twos = Filled(kBlock, 2);
  REQUIRE(Write(disk.engine(), *file, 0, twos.data(), kBlock).ok());
  bool torn = false;
  for (uint64_t choice = 2; choice < kChoices; ++choice) {
    const auto bytes = Contents(*disk.AfterCrash(choice), "/f");
    for (uint64_t sector = 0; sector < kBlock; sector += 512) {
      for (uint64_t at = sector; at < sector + 512; ++at) {
        REQUIRE(bytes[at] == bytes[sector]);
      }
      torn = torn || bytes[sector] != bytes[0];
    }
  }
  CHECK(torn);
}

TEST_CASE("SimulatedDisk: of two unsynced writes the older can survive", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 1, 1);
  for (int value : {2, 3}) {
    const base::AlignedBuffer bytes = Filled(kBlock, value);
    REQUIRE(Write(disk.engine(), *file, 0, bytes.data(), kBlock).ok());
  }
  std::set<int> seen;
  for (uint64_t choice = 0; choice < kChoices; ++choice) {
    seen.insert(static_cast<int>(Contents(*disk.AfterCrash(choice), "/f")[0]));
  }
  CHECK(seen == std::set<int>{1, 2, 3});
}

TEST_CASE("SimulatedDisk: a synced write survives every crash", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 3, 7);
  for (uint64_t choice = 0; choice < 20; ++choice) {
    CHECK(Contents(*disk.AfterCrash(choice), "/f") ==
          std::vector<std::byte>(3 * kBlock, std::byte{7}));
  }
}

TEST_CASE("SimulatedDisk: a file's name needs a sync of its directory", "[io]") {
  SimulatedDisk disk;
  const auto file = MustOpen(disk.files(), "/f", OpenMode::kCreate);
  REQUIRE(Write(disk.engine(), *file, 0, Bytes("hello").data(), 5).ok());
  REQUIRE(Sync(disk.engine(), *file).ok());
  CHECK(!Exists(*disk.AfterCrash(0), "/f"));
  CHECK(Contents(*disk.AfterCrash(1), "/f") == Bytes("hello"));
  REQUIRE(disk.files().SyncDirectory("/").ok());
  CHECK(Contents(*disk.AfterCrash(0), "/f") == Bytes("hello"));
}

TEST_CASE("SimulatedDisk: a durable name of an unsynced file can be empty", "[io]") {
  SimulatedDisk disk;
  const auto file = MustOpen(disk.files(), "/f", OpenMode::kCreate);
  REQUIRE(Write(disk.engine(), *file, 0, Bytes("hello").data(), 5).ok());
  REQUIRE(disk.files().SyncDirectory("/").ok());
  CHECK(Contents(*disk.AfterCrash(0), "/f").empty());
  bool zeros = false;
  for (uint64_t choice = 0; choice < kChoices; ++choice) {
    zeros = zeros || Contents(*disk.AfterCrash(choice), "/f") == std::vector<std::byte>(5);
  }
  CHECK(zeros);  // the length arrived, the bytes did not
}

TEST_CASE("SimulatedDisk: a directory of an unsynced name takes its files with it", "[io]") {
  SimulatedDisk disk;
  REQUIRE(disk.files().CreateDirectory("/d", 0750).ok());
  MustOpen(disk.files(), "/d/f", OpenMode::kCreate);
  REQUIRE(disk.files().SyncDirectory("/d").ok());
  CHECK(!Exists(*disk.AfterCrash(0), "/d"));
  REQUIRE(disk.files().SyncDirectory("/").ok());
  CHECK(Exists(*disk.AfterCrash(0), "/d/f"));
}

TEST_CASE("SimulatedDisk: a rename is there or not, never half", "[io]") {
  SimulatedDisk disk;
  DurableFile(disk, 1, 1);
  REQUIRE(disk.files().CreateDirectory("/d", 0750).ok());
  REQUIRE(disk.files().SyncDirectory("/").ok());
  REQUIRE(disk.files().Rename("/f", "/d/g").ok());
  std::set<bool> moved;
  for (uint64_t choice = 0; choice < kChoices; ++choice) {
    const auto after = disk.AfterCrash(choice);
    CHECK(Exists(*after, "/f") != Exists(*after, "/d/g"));
    moved.insert(Exists(*after, "/d/g"));
  }
  CHECK(moved.size() == 2);
  REQUIRE(disk.files().SyncDirectory("/d").ok());
  CHECK(!Exists(*disk.AfterCrash(0), "/f"));
  CHECK(Exists(*disk.AfterCrash(0), "/d/g"));
}

TEST_CASE("SimulatedDisk: a rename replaces its target as one change", "[io]") {
  SimulatedDisk disk;
  DurableFile(disk, 1, 1);
  const auto other = MustOpen(disk.files(), "/new", OpenMode::kCreate);
  REQUIRE(Write(disk.engine(), *other, 0, Bytes("x").data(), 1).ok());
  REQUIRE(Sync(disk.engine(), *other).ok());
  REQUIRE(disk.files().Rename("/new", "/f").ok());
  CHECK(Contents(disk, "/f") == Bytes("x"));
  for (uint64_t choice = 0; choice < kChoices; ++choice) {
    const uint64_t size = disk.AfterCrash(choice)->files().Stat("/f")->size_bytes;
    CHECK((size == 1 || size == kBlock));
  }
}

TEST_CASE("SimulatedDisk: an unsynced unlink can come back, with its links", "[io]") {
  SimulatedDisk disk;
  DurableFile(disk, 1, 1);
  REQUIRE(disk.files().Link("/f", "/pin").ok());
  REQUIRE(disk.files().SyncDirectory("/").ok());
  REQUIRE(disk.files().Unlink("/f").ok());
  CHECK(disk.files().Stat("/pin")->links == 1);
  const auto after = disk.AfterCrash(0);
  CHECK(after->files().Stat("/f")->links == 2);
  CHECK(after->files().Stat("/f")->inode == after->files().Stat("/pin")->inode);
}

TEST_CASE("SimulatedDisk: an unsynced Allocate leaves the old file or the empty one", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 2, 1);
  REQUIRE(file->Allocate(3 * kBlock).ok());
  const base::AlignedBuffer twos = Filled(kBlock, 2);
  REQUIRE(Write(disk.engine(), *file, 0, twos.data(), kBlock).ok());
  CHECK(Contents(*disk.AfterCrash(0), "/f") == std::vector<std::byte>(2 * kBlock, std::byte{1}));
  for (uint64_t choice = 1; choice < kChoices; ++choice) {
    const auto bytes = Contents(*disk.AfterCrash(choice), "/f");
    const bool old = bytes == std::vector<std::byte>(2 * kBlock, std::byte{1});
    const bool reset = bytes.size() == 3 * kBlock && bytes[2 * kBlock] == std::byte{0};
    CHECK((old || reset));
  }
  REQUIRE(Sync(disk.engine(), *file).ok());
  CHECK(Contents(*disk.AfterCrash(0), "/f")[0] == std::byte{2});
}

TEST_CASE("SimulatedDisk: reads a write's buffer when the write completes", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 1, 1);
  base::AlignedBuffer buffer = Filled(kBlock, 2);
  disk.Hold();
  Batch batch(disk.engine());
  batch.Add({.op = IoOp::kWrite, .file = file.get(), .data = buffer.data(), .length = kBlock});
  batch.Submit();
  CHECK(disk.held_transfers() == 1);
  std::memset(buffer.data(), 3, kBlock);
  disk.Release();
  batch.Wait();
  CHECK(Contents(disk, "/f")[0] == std::byte{3});
}

TEST_CASE("SimulatedDisk: numbers what changes it and cuts the power before any", "[io]") {
  SimulatedDisk disk;
  const auto file = MustOpen(disk.files(), "/f", OpenMode::kCreate);
  CHECK(disk.operations() == 1);
  REQUIRE(Write(disk.engine(), *file, 0, Bytes("a").data(), 1).ok());
  std::byte byte{};
  REQUIRE(Read(disk.engine(), *file, 0, &byte, 1).ok());
  CHECK(disk.operations() == 2);
  disk.CutPowerBefore(3);
  CHECK(!disk.power_is_off());
  const absl::Status status = Sync(disk.engine(), *file);
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "power is off");
  CHECK(disk.power_is_off());
  CHECK(absl::IsUnavailable(Read(disk.engine(), *file, 0, &byte, 1)));
  CHECK(absl::IsUnavailable(file->Size().status()));
  CHECK(absl::IsUnavailable(disk.files().Open("/f", {}).status()));
  CHECK(absl::IsUnavailable(disk.files().List("/").status()));
  CHECK(disk.operations() == 2);
  CHECK(disk.AfterCrash(1)->files().Open("/f", {}).ok());
}

TEST_CASE("SimulatedDisk: a refused operation changes nothing and has no number", "[io]") {
  SimulatedDisk disk;
  DurableFile(disk, 1, 1);
  const uint64_t before = disk.operations();
  CHECK(absl::IsAlreadyExists(disk.files().Open("/f", {.mode = OpenMode::kCreate}).status()));
  CHECK(absl::IsNotFound(disk.files().Rename("/none", "/x")));
  CHECK(absl::IsAlreadyExists(disk.files().Link("/f", "/f")));
  CHECK(!disk.files().RemoveDirectory("/f").ok());
  CHECK(!disk.files().Unlink("/").ok());
  CHECK(disk.operations() == before);
}

TEST_CASE("SimulatedDisk: FailNext fails one matching transfer", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 1, 1);
  disk.FailNext(IoOp::kWrite, "f", absl::InternalError("planted"));
  const base::AlignedBuffer twos = Filled(kBlock, 2);
  CHECK(Write(disk.engine(), *file, 0, twos.data(), kBlock).message() == "planted");
  CHECK(disk.unsynced_changes() == 0);
  CHECK(Write(disk.engine(), *file, 0, twos.data(), kBlock).ok());
}

TEST_CASE("SimulatedDisk: what a failed sync covered stays volatile although a later succeeds",
          "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 1, 1);
  const base::AlignedBuffer twos = Filled(kBlock, 2);
  REQUIRE(Write(disk.engine(), *file, 0, twos.data(), kBlock).ok());
  disk.FailNext(IoOp::kSync, "f", absl::InternalError("planted"));
  CHECK(!Sync(disk.engine(), *file).ok());
  CHECK(Sync(disk.engine(), *file).ok());
  CHECK(Contents(disk, "/f")[0] == std::byte{2});
  CHECK(Contents(*disk.AfterCrash(0), "/f")[0] == std::byte{1});
  REQUIRE(Write(disk.engine(), *file, 0, twos.data(), kBlock).ok());
  CHECK(Sync(disk.engine(), *file).ok());
  CHECK(Contents(*disk.AfterCrash(0), "/f")[0] == std::byte{2});
}

TEST_CASE("SimulatedDisk: a full disk refuses growth and allows overwriting", "[io]") {
  SimulatedDisk disk({.capacity_bytes = 4 * kBlock});
  const auto file = DurableFile(disk, 3, 1);
  CHECK(disk.files().FreeSpace("/")->free_bytes == kBlock);
  const auto other = MustOpen(disk.files(), "/g", OpenMode::kCreate);
  CHECK(absl::IsResourceExhausted(other->Allocate(2 * kBlock)));
  const base::AlignedBuffer twos = Filled(3 * kBlock, 2);
  CHECK(absl::IsResourceExhausted(Write(disk.engine(), *other, 0, twos.data(), 2 * kBlock)));
  CHECK(Write(disk.engine(), *file, 0, twos.data(), 3 * kBlock).ok());
  REQUIRE(disk.files().Unlink("/f").ok());
  CHECK(disk.files().FreeSpace("/")->free_bytes == kBlock);  // still open
}

TEST_CASE("SimulatedDisk: permissions survive with the file or its directory synced", "[io]") {
  SimulatedDisk disk;
  DurableFile(disk, 1, 1);
  REQUIRE(disk.files().SetPermissions("/f", 0440).ok());
  CHECK(disk.unsynced_changes() == 1);
  CHECK(disk.AfterCrash(0)->files().Stat("/f")->permissions == 0640);
  CHECK(disk.AfterCrash(1)->files().Stat("/f")->permissions == 0440);
  REQUIRE(disk.files().SyncDirectory("/").ok());
  CHECK(disk.AfterCrash(0)->files().Stat("/f")->permissions == 0440);
}

TEST_CASE("SimulatedDisk: Corrupt flips bits and truncates durably", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 2, 1);
  disk.Corrupt("/f", [](std::vector<std::byte>& bytes) {
    bytes[5] ^= std::byte{1};
    bytes.resize(kBlock);
  });
  CHECK(*file->Size() == kBlock);
  const auto bytes = Contents(*disk.AfterCrash(0), "/f");
  CHECK(bytes.size() == kBlock);
  CHECK(bytes[5] == std::byte{0});
}

TEST_CASE("SimulatedDisk: an unlinked file stays readable while it is open", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 1, 9);
  REQUIRE(disk.files().Unlink("/f").ok());
  base::AlignedBuffer block = ZeroBuffer(kBlock);
  REQUIRE(Read(disk.engine(), *file, 0, block.data(), kBlock).ok());
  CHECK(block.data()[0] == std::byte{9});
}

TEST_CASE("SimulatedDisk: a file may outlive its disk", "[io]") {
  std::unique_ptr<File> file;
  {
    SimulatedDisk disk;
    file = DurableFile(disk, 1, 1);
  }
  CHECK(*file->Size() == kBlock);
}

TEST_CASE("SimulatedDisk: a file of another disk is refused", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 1, 1);
  const auto after = disk.AfterCrash(1);
  CHECK(absl::IsInvalidArgument(Sync(after->engine(), *file)));
}

TEST_CASE("SimulatedDisk: the same choice leaves the same disk", "[io]") {
  SimulatedDisk disk;
  const auto file = DurableFile(disk, 8, 1);
  const base::AlignedBuffer bytes = RandomBuffer(8 * kBlock, 3);
  REQUIRE(Write(disk.engine(), *file, 0, bytes.data(), 8 * kBlock).ok());
  for (uint64_t choice = 2; choice < 30; ++choice) {
    CHECK(Contents(*disk.AfterCrash(choice), "/f") == Contents(*disk.AfterCrash(choice), "/f"));
  }
}

TEST_CASE("SimulatedDisk: completes in the order of submission unless told to reorder", "[io]") {
  for (const bool reorder : {false, true}) {
    SimulatedDisk disk({.seed = 5, .reorder = reorder});
    const auto file = DurableFile(disk, 32, 1);
    base::AlignedBuffer buffer = ZeroBuffer(32 * kBlock);
    Batch batch(disk.engine());
    std::vector<size_t> sorted;
    for (uint64_t index = 0; index < 32; ++index) {
      batch.Add({.op = IoOp::kRead,
                 .file = file.get(),
                 .offset = index * kBlock,
                 .data = buffer.data() + index * kBlock,
                 .length = kBlock});
      sorted.push_back(index);
    }
    disk.Hold();
    batch.Submit();
    disk.Release();
    batch.Wait();
    CHECK((batch.order() == sorted) == !reorder);
  }
}

}  // namespace
}  // namespace moment::io
