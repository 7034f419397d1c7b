#include "daemon/store/commit_rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace moment::store {
namespace {

bool IsLive(const std::vector<RecordFacts>& records, const RecordFacts& record) {
  return std::none_of(records.begin(), records.end(), [&](const RecordFacts& other) {
    return other.id > record.id && other.sequence <= record.sequence;
  });
}

// Index of the newest due live record with sequence + 2 <= the arriving one; -1 without any.
int NewestDueBehind(const std::vector<RecordFacts>& records, const std::vector<bool>& live,
                    uint64_t sequence) {
  int best = -1;
  for (size_t i = 0; i < records.size(); ++i) {
    const bool candidate = live[i] && records[i].due && records[i].sequence + 2 <= sequence;
    if (candidate &&
        (best < 0 || records[i].sequence > records[static_cast<size_t>(best)].sequence)) {
      best = static_cast<int>(i);
    }
  }
  return best;
}

}  // namespace

bool IsDue(uint64_t sequence, uint64_t commit_every) {
  return commit_every != 0 && sequence % commit_every == 0;
}

std::vector<bool> LiveRecords(const std::vector<RecordFacts>& records) {
  std::vector<bool> live;
  live.reserve(records.size());
  for (const RecordFacts& record : records) {
    live.push_back(IsLive(records, record));
  }
  return live;
}

absl::StatusOr<std::vector<bool>> KeptAtArrival(const std::vector<RecordFacts>& records,
                                                uint64_t sequence) {
  const std::vector<bool> live = LiveRecords(records);
  const int due = NewestDueBehind(records, live, sequence);
  std::vector<bool> kept(records.size(), false);
  for (size_t i = 0; i < records.size(); ++i) {
    if (live[i] && records[i].sequence >= sequence) {
      return absl::FailedPreconditionError(
          absl::StrCat("step ", sequence, " arrives at a store with a commit of sequence ",
                       records[i].sequence));
    }
    kept[i] = live[i] && (records[i].sequence + 1 == sequence || static_cast<int>(i) == due);
  }
  if (std::find(kept.begin(), kept.end(), true) == kept.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", sequence, " arrives at a store without a commit that it may follow"));
  }
  return kept;
}

int NewestRecord(const std::vector<RecordFacts>& records) {
  const auto newest =
      std::max_element(records.begin(), records.end(),
                       [](const RecordFacts& a, const RecordFacts& b) { return a.id < b.id; });
  return newest == records.end() ? -1 : static_cast<int>(newest - records.begin());
}

}  // namespace moment::store
