#pragma once

#include <utility>
#include <vector>

#include "daemon/store/inspect.h"
#include "tests/store/opened_store.h"
#include "tests/support/catch.h"

namespace moment::store {

// An opened store that has made some steps; `expected` is its newest commit.
struct SteppedStore : OpenedStore {
  explicit SteppedStore(uint64_t steps = 4, const io::SimulatedFaults& faults = {})
      : OpenedStore(faults) {
    REQUIRE(Open().ok());
    auto stepped = driver().RefreshAndStep(steps);
    REQUIRE(stepped.ok());
    expected = *stepped;
  }

  absl::StatusOr<DrivenStep> BeginNext(std::vector<bool> rewritten = {}) {
    return driver().BeginStepBehind(*store->newest(), expected, expected.sequence + 1, true,
                                    std::move(rewritten));
  }
  // A whole step; its arrival included.
  absl::Status Step(std::vector<bool> rewritten = {}) {
    if (absl::Status status = store->Drop(expected.sequence + 1); !status.ok()) {
      return status;
    }
    absl::StatusOr<DrivenStep> step = BeginNext(std::move(rewritten));
    absl::Status status = step.status();
    status.Update(step.ok() ? driver().WriteAll(*step) : status);
    status.Update(status.ok() ? driver().Commit(*step) : status);
    expected = status.ok() ? step->expected : expected;
    return status;
  }
  void FillDisk() {
    const auto filler = disk.files().Open("/filler", {.mode = io::OpenMode::kCreate});
    REQUIRE(filler.ok());
    uint64_t length = 0;
    while ((*filler)->Allocate(length + 4096).ok()) {
      length += 4096;
    }
    REQUIRE((*filler)->Allocate(length).ok());
  }
  std::vector<uint64_t> LiveSequences() const {
    std::vector<uint64_t> sequences;
    for (const v1::CommitInfo& commit : store->live()) {
      sequences.push_back(commit.sequence());
    }
    return sequences;
  }
  size_t FileCount(size_t bucket) {
    size_t count = 0;
    const auto described = ReadStore(disk.files(), disk.engine(), store->directory());
    REQUIRE(described.ok());
    for (const v1::BucketFile& file : described->files()) {
      count += file.bucket() == bucket ? 1 : 0;
    }
    return count;
  }

  ExpectedCommit expected;
};

}  // namespace moment::store
