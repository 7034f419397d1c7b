#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

// Which records count, and which are kept: pure functions, checked in tests by exhaustive
// exploration of ranks, steps, commits, changes between steps, crashes and rollbacks.
namespace moment::store {

// What the rules know of a record.
struct RecordFacts {
  uint64_t id = 0;
  uint64_t sequence = 0;
  bool due = false;
};

// Every rank makes the commit of this sequence by itself. With commit_every 0 none is.
bool IsDue(uint64_t sequence, uint64_t commit_every);

// By record: no higher id has a sequence <= its own.
std::vector<bool> LiveRecords(const std::vector<RecordFacts>& records);

// By record, on arrival of the Step or Skip of `sequence`: of the live ones the newest due one with
// sequence <= sequence - 2 and that of sequence - 1. FAILED_PRECONDITION if a live record has this
// sequence or a later one, or if nothing would be kept: such a step does not follow.
absl::StatusOr<std::vector<bool>> KeptAtArrival(const std::vector<RecordFacts>& records,
                                                uint64_t sequence);

// Index of the record with the highest id; -1 without any.
int NewestRecord(const std::vector<RecordFacts>& records);

}  // namespace moment::store
