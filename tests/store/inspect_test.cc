#include "daemon/store/inspect.h"

#include "absl/synchronization/notification.h"
#include "daemon/base/worker_pool.h"
#include "tests/store/opened_store.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

struct SteppedStore : OpenedStore {
  SteppedStore() {
    REQUIRE(Open().ok());
    REQUIRE(driver().RefreshAndStep(4).ok());
    directory = store->directory();
  }
  absl::StatusOr<std::vector<v1::VerifyProblem>> Verify(const VerifyOptions& options = {}) {
    return VerifyStore(disk.files(), disk.engine(), workers, directory, options);
  }
  base::WorkerPool workers{2};
  std::string directory;
};

TEST_CASE("Inspect: a store is described by its files alone", "[store]") {
  SteppedStore opened;
  const auto described = ReadStore(opened.disk.files(), opened.disk.engine(), opened.directory);
  REQUIRE(described.ok());
  CHECK(described->store().name().job() == "job");
  CHECK(described->store().store_uuid() == opened.store->uuid());
  CHECK(described->layout().tensors_size() == 4);
  REQUIRE(described->commits_size() == 3);
  CHECK(described->commits(0).sequence() == 4);
  CHECK(described->commits(0).blob().empty());
  CHECK(described->files_size() == 9);
  CHECK(described->summary().sequence() == 4);
  CHECK(described->summary().parameters() == 2040);
  CHECK(described->summary().disk_bytes() == opened.store->reserved_bytes());
}

TEST_CASE("Inspect: pins are told with their owner and what only they hold", "[store]") {
  SteppedStore opened;
  const auto read = [&] {
    return ReadStore(opened.disk.files(), opened.disk.engine(), opened.directory)->summary();
  };
  const uint64_t before = read().disk_bytes();
  PinParameters parameters;
  parameters.id = "one";
  parameters.owner.set_pid(42);
  parameters.owner.set_program("train.py");
  REQUIRE(opened.store->Pin(parameters).ok());
  parameters.id = "two";
  REQUIRE(opened.store->Pin(parameters).ok());
  const uint64_t image_bytes = opened.store->pins().front()->size_bytes;
  v1::StoreSummary summary = read();
  REQUIRE(summary.pins_size() == 2);
  CHECK(summary.pins(0).id() == "one");
  CHECK(summary.pins(0).owner().pid() == 42);
  CHECK(summary.pins(0).owner().program() == "train.py");
  CHECK(summary.pins(0).sequence() == 4);
  CHECK(summary.pins(0).commit() == opened.store->newest()->id);
  CHECK(summary.pins(0).unix_time_ns() > 0);
  CHECK(summary.pins(0).size_bytes() == image_bytes);
  CHECK(summary.pins(0).held_bytes() == 0);
  CHECK(summary.disk_bytes() == before + image_bytes);  // what stepping lacks was made
  for (uint64_t sequence = 5; sequence <= 7; ++sequence) {
    REQUIRE(opened.store->Drop(sequence).ok());
    ExpectedCommit any;
    any.seeds.resize(3);
    any.written_by.resize(3);
    any.moments_zero.resize(3);
    any.t.resize(4);
    auto step = opened.driver().BeginStepBehind(*opened.store->newest(), any, sequence, true);
    REQUIRE(step.ok());
    REQUIRE(opened.driver().WriteAll(*step).ok());
    REQUIRE(opened.driver().Commit(*step).ok());
  }
  REQUIRE(opened.store->Sweep().ok());
  REQUIRE(opened.disk.files()
              .Unlink(Join(PinDirectory(opened.directory, "two"), kManifestFileName))
              .ok());
  summary = read();
  CHECK(summary.pins(0).held_bytes() == image_bytes);
  CHECK(summary.disk_bytes() == before + image_bytes);
  CHECK(summary.pins(1).problem().find("half of a pin") != std::string::npos);
}

TEST_CASE("Inspect: a directory without store.json is not found", "[store]") {
  OpenedStore opened;
  CHECK(absl::IsNotFound(
      ReadStore(opened.disk.files(), opened.disk.engine(), "/state/jobs/a/b/rank00000").status()));
}

TEST_CASE("Inspect: stores are listed, one that cannot be read with its problem", "[store]") {
  SteppedStore opened;
  OpenParameters other = SmallStore();
  other.name.set_job("other job/with a slash");
  const auto second = Store::Open(opened.environment, other);
  REQUIRE(second.ok());
  opened.Truncate(Join((*second)->directory(), "store.json"), 3);
  const auto stores = ListStores(opened.disk.files(), opened.disk.engine(), kTestStateDirectory);
  REQUIRE(stores.ok());
  REQUIRE(stores->size() == 2);
  CHECK((*stores)[0].problem().empty());
  CHECK((*stores)[0].name().role() == "model");
  CHECK((*stores)[1].problem().find("store.json at offset 0") != std::string::npos);
}

TEST_CASE("Inspect: a state directory without stores lists none", "[store]") {
  io::SimulatedDisk disk;
  const auto stores = ListStores(disk.files(), disk.engine(), "/nowhere");
  REQUIRE(stores.ok());
  CHECK(stores->empty());
}

TEST_CASE("Verify: an undamaged store has no problems and reports its progress", "[store]") {
  SteppedStore opened;
  uint64_t last = 0;
  uint64_t total = 0;
  const auto problems = opened.Verify({.progress = [&](uint64_t bytes_done, uint64_t bytes_total) {
    CHECK(bytes_done >= last);
    last = bytes_done;
    total = bytes_total;
  }});
  REQUIRE(problems.ok());
  CHECK(problems->empty());
  CHECK(total > 0);
  CHECK(last == total);
}

TEST_CASE("Verify: a flipped bit is found with path and offset of its unit", "[store]") {
  SteppedStore opened;
  const std::string path = opened.NewestFile(1);
  const SegmentGeometry& place = opened.store->layout()->buckets()[1].segments[2];
  opened.FlipBit(path, place.offset + 5);
  const auto problems = opened.Verify();
  REQUIRE(problems.ok());
  REQUIRE(problems->size() == 1);
  CHECK((*problems)[0].path() == path);
  CHECK((*problems)[0].offset() == place.offset);
  CHECK((*problems)[0].message().find("exp_avg_sq") != std::string::npos);
}

TEST_CASE("Verify: a damaged header and a missing file are problems", "[store]") {
  SteppedStore opened;
  const std::string header = opened.NewestFile(0);
  const std::string missing = opened.NewestFile(2);
  opened.FlipBit(header, 100);
  REQUIRE(opened.disk.files().Unlink(missing).ok());
  const auto problems = opened.Verify();
  REQUIRE(problems.ok());
  REQUIRE(problems->size() == 2);
  CHECK((*problems)[0].path() == header);
  CHECK((*problems)[0].offset() == 100);
  CHECK((*problems)[1].path() == missing);
  CHECK((*problems)[1].message() == "the file is missing");
}

TEST_CASE("Verify: it can be cancelled while its reads wait", "[store]") {
  SteppedStore opened;
  // The first reads of the workers block one of them until the call was told to end.
  bool held = false;
  base::WorkerPool busy(1);
  struct Blocker : base::WorkerPool::Task {
    absl::Notification release;
  } blocker;
  blocker.run = [](base::WorkerPool::Task* task) noexcept {
    static_cast<Blocker*>(task)->release.WaitForNotification();
  };
  busy.Post(&blocker);
  const auto problems = VerifyStore(opened.disk.files(), opened.disk.engine(), busy,
                                    opened.directory, {.cancelled = [&] {
                                      if (!held) {
                                        held = true;
                                        blocker.release.Notify();
                                      }
                                      return true;
                                    }});
  CHECK(absl::IsCancelled(problems.status()));
}

TEST_CASE("Inspect: a bucket file is described by itself", "[store]") {
  SteppedStore opened;
  const std::string path = opened.NewestFile(1);
  const auto view = DescribeBucketFile(opened.disk.files(), opened.disk.engine(), path);
  REQUIRE(view.ok());
  CHECK(view->member == "opt0_0");
  CHECK(view->number == 1);
  CHECK(view->has_checksums);
  CHECK(view->bucket == 1);
  CHECK(view->written_by == opened.store->newest()->id);
  CHECK(view->store_uuid == opened.store->uuid());
  CHECK(view->header_bytes == 4096);
  REQUIRE(view->tensors.size() == 10);  // 2 slices and a pad, three times; the table
  CHECK(view->tensors[0].name == "main@1500/weight");
  CHECK(view->tensors[0].shape == std::vector<uint64_t>{500});
  CHECK(view->tensors[1].name == "main/bias");
  CHECK(view->tensors[2].name == "__pad__/main");
  CHECK(view->tensors.back().name == "__checksums__");
}

TEST_CASE("Inspect: a file that is no bucket file is refused with path and offset", "[store]") {
  SteppedStore opened;
  const std::string path = opened.NewestFile(1);
  opened.Truncate(path, 8192);
  const auto cut = DescribeBucketFile(opened.disk.files(), opened.disk.engine(), path);
  CHECK(absl::IsDataLoss(cut.status()));
  CHECK(cut.status().message().find(path + " at offset 8192") != std::string::npos);
  const auto other =
      DescribeBucketFile(opened.disk.files(), opened.disk.engine(), opened.PathOf("commit.0"));
  CHECK(absl::IsDataLoss(other.status()));
}

TEST_CASE("Inspect: commit files are described by themselves", "[store]") {
  SteppedStore opened;
  int records = 0;
  int empty = 0;
  for (int i = 0; i < kCommitFiles; ++i) {
    const auto view = DescribeCommitFile(opened.disk.files(), opened.disk.engine(),
                                         opened.PathOf(CommitFileName(i)));
    REQUIRE(view.ok());
    records += view->copy_valid[0] && view->copy_valid[1] ? 1 : 0;
    empty += view->empty ? 1 : 0;
  }
  CHECK(records == 3);
  CHECK(empty == 1);
}

}  // namespace
}  // namespace moment::store
