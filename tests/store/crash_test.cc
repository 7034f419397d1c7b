#include "tests/store/crash_scenarios.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

void RequireNoProblem(const CrashScenario& scenario, const CrashSearch& search) {
  const CrashResult result = Search(scenario, search);
  INFO(scenario.name << ": " << result.cuts << " cuts, " << result.reopenings
                     << " reopenings, seed " << search.disk.seed);
  CHECK(result.problem == "");
  CHECK(result.cuts > 20);
}

TEST_CASE("Crash: power cut anywhere in the first Open leaves a store that opens empty",
          "[store][crash]") {
  RequireNoProblem(FirstOpen(), {.recovery_stride = 100});
}

TEST_CASE("Crash: power cut anywhere in Refresh and overlapped steps leaves a whole commit",
          "[store][crash]") {
  RequireNoProblem(OverlappedSteps(1, 6), {.recovery_stride = 100});
}

TEST_CASE("Crash: power cut anywhere in steps that commit each second or third sequence",
          "[store][crash]") {
  RequireNoProblem(OverlappedSteps(2, 5), {.drawn_choices = 2});
  RequireNoProblem(OverlappedSteps(3, 4), {.drawn_choices = 2});
}

TEST_CASE("Crash: power cut anywhere in rollbacks and changes between steps", "[store][crash]") {
  RequireNoProblem(Rollbacks(), {.recovery_stride = 50});
}

TEST_CASE("Crash: power cut anywhere in an Open that adds tensors and grows the records",
          "[store][crash]") {
  RequireNoProblem(Superset(), {.drawn_choices = 2, .recovery_stride = 120});
}

TEST_CASE("Crash: power cut anywhere in a Refresh that starts over", "[store][crash]") {
  RequireNoProblem(StartOver(), {.recovery_stride = 100});
}

TEST_CASE("Crash: power cut anywhere in pins, their dropping and the steps between",
          "[store][crash]") {
  RequireNoProblem(Pins(), {.drawn_choices = 4, .recovery_stride = 80});
}

TEST_CASE("Crash: power cut anywhere while transfers are cut short and reordered",
          "[store][crash]") {
  CrashSearch search{.drawn_choices = 2};
  search.disk.seed = 20;
  search.disk.reorder = true;
  search.disk.short_transfers = true;
  RequireNoProblem(OverlappedSteps(1, 3), search);
}

TEST_CASE("Crash: what a killed process left in the caches is durable once another shows it",
          "[store][crash]") {
  RequireNoProblem(FirstOpen(), {.drawn_choices = 2, .kill_first = true});
  RequireNoProblem(OverlappedSteps(1, 4), {.drawn_choices = 2, .kill_first = true});
  RequireNoProblem(Rollbacks(), {.drawn_choices = 2, .kill_first = true});
  RequireNoProblem(Superset(), {.drawn_choices = 2, .kill_first = true});
  RequireNoProblem(Pins(), {.drawn_choices = 1, .kill_first = true});
}

TEST_CASE("Crash: the search reports a record that is durable before its data", "[store][crash]") {
  CHECK(Search(OverlappedSteps(1, 4), {.faults = {.record_before_sync = true}}).problem != "");
}

TEST_CASE("Crash: the search reports files marked before the first record is durable",
          "[store][crash]") {
  CHECK(Search(OverlappedSteps(1, 1), {.faults = {.mark_before_sync = true}}).problem != "");
}

TEST_CASE("Crash: the search reports files reused while their record stays", "[store][crash]") {
  CHECK(Search(OverlappedSteps(1, 5), {.faults = {.reuse_before_erase = true}}).problem != "");
}

TEST_CASE("Crash: the search reports a pinned file that is written again", "[store][crash]") {
  CHECK_THAT(Search(Pins(), {.faults = {.rewrite_pinned = true}}).problem,
             test::ContainsSubstring("other bytes"));
}

TEST_CASE("Crash: the search reports pinned files whose mode does not tell it", "[store][crash]") {
  CHECK_THAT(Search(Pins(), {.drawn_choices = 0, .faults = {.pin_without_mode = true}}).problem,
             test::ContainsSubstring("other bytes"));
}

TEST_CASE("Crash: the search reports an erasure that is not synced", "[store][crash]") {
  CHECK(Search(OverlappedSteps(1, 5), {.faults = {.erase_without_sync = true}}).problem != "");
}

}  // namespace
}  // namespace moment::store
