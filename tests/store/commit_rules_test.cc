#include "daemon/store/commit_rules.h"

#include "tests/store/rank_exploration.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

using Facts = std::vector<RecordFacts>;
using Flags = std::vector<bool>;

TEST_CASE("Rules: with commit_every K each Kth sequence is due, with 0 none", "[store]") {
  CHECK(IsDue(0, 1));
  CHECK(IsDue(7, 1));
  CHECK(IsDue(6, 3));
  CHECK(!IsDue(7, 3));
  CHECK(!IsDue(0, 0));
  CHECK(!IsDue(5, 0));
}

TEST_CASE("Rules: a record is dead once a higher id has its sequence or an earlier one",
          "[store]") {
  CHECK(LiveRecords(Facts{}) == Flags{});
  CHECK(LiveRecords(Facts{{1, 0, true}, {2, 1, true}}) == Flags{true, true});
  CHECK(LiveRecords(Facts{{1, 0, true}, {2, 1, true}, {3, 1, true}}) == Flags{true, false, true});
  CHECK(LiveRecords(Facts{{1, 0, true}, {2, 1, true}, {3, 0, true}}) == Flags{false, false, true});
}

TEST_CASE("Rules: the arrival of N keeps the newest due one up to N-2 and that of N-1", "[store]") {
  CHECK(*KeptAtArrival(Facts{{1, 0, true}, {2, 1, true}, {3, 2, true}}, 3) ==
        Flags{false, true, true});
  CHECK(*KeptAtArrival(Facts{{1, 0, true}}, 1) == Flags{true});
  CHECK(*KeptAtArrival(Facts{{1, 0, true}, {2, 1, false}, {3, 2, false}}, 3) ==
        Flags{true, false, true});
  CHECK(*KeptAtArrival(Facts{{1, 0, true}, {2, 1, false}}, 3) == Flags{true, false});
}

TEST_CASE("Rules: the arrival of a step that cannot follow is refused", "[store]") {
  CHECK(absl::IsFailedPrecondition(KeptAtArrival(Facts{{1, 5, true}}, 5).status()));
  CHECK(absl::IsFailedPrecondition(KeptAtArrival(Facts{{1, 5, true}}, 3).status()));
  CHECK(absl::IsFailedPrecondition(KeptAtArrival(Facts{}, 1).status()));
}

TEST_CASE("Rules: the highest id is the newest", "[store]") {
  CHECK(NewestRecord(Facts{}) == -1);
  CHECK(NewestRecord(Facts{{3, 1, true}, {9, 0, true}, {4, 7, true}}) == 1);
}

TEST_CASE("Rules: after any crash the ranks have a common sequence, in three images", "[store]") {
  for (const uint64_t commit_every : {uint64_t{1}, uint64_t{2}, uint64_t{3}}) {
    const ExplorationResult result = Explore({.commit_every = commit_every, .steps = 6});
    INFO("commit_every " << commit_every << ", " << result.states << " states");
    CHECK(result.common);
    CHECK(result.refused == "");
    CHECK(result.images == 3);
    CHECK(result.records <= 4);
    CHECK(result.lost_steps == commit_every);
    CHECK(result.states > 500);
  }
}

TEST_CASE("Rules: three ranks have a common sequence, too", "[store]") {
  const ExplorationResult result =
      Explore({.commit_every = 2, .ranks = 3, .steps = 4, .crashes = 1});
  CHECK(result.common);
  CHECK(result.images == 3);
}

TEST_CASE("Rules: changes between steps need a fourth image and keep a common sequence",
          "[store]") {
  for (const uint64_t commit_every : {uint64_t{1}, uint64_t{2}}) {
    const ExplorationResult result =
        Explore({.commit_every = commit_every, .steps = 4, .changes = 2});
    CHECK(result.common);
    CHECK(result.refused == "");
    CHECK(result.images == 4);
    CHECK(result.records == 4);
  }
}

TEST_CASE("Rules: commits of one rank alone, as at its end, keep a common sequence", "[store]") {
  for (const uint64_t commit_every : {uint64_t{2}, uint64_t{3}}) {
    const ExplorationResult result =
        Explore({.commit_every = commit_every, .steps = 5, .early_commits = 2});
    CHECK(result.common);
    CHECK(result.refused == "");
    CHECK(result.images == 3);
  }
}

TEST_CASE("Rules: a change that lost its due would leave nothing to keep, and is noticed",
          "[store]") {
  const ExplorationResult result = Explore({.changes = 2, .inherit_due = false});
  CHECK(result.refused.find("without a commit that it may follow") != std::string::npos);
}

TEST_CASE("Rules: the exploration reports answers that wait for no commit", "[store]") {
  CHECK(!Explore({.steps = 6, .answer_waits = false}).common);
}

TEST_CASE("Rules: without erasing dead records four commit files are too few", "[store]") {
  CHECK(Explore({.steps = 5, .erase_dead = false}).records == 5);
}

}  // namespace
}  // namespace moment::store
