#include <set>

#include "tests/store/stepped_store.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

TEST_CASE("Commit: the arrival of a step erases what is not kept", "[store]") {
  SteppedStore opened;
  CHECK(opened.LiveSequences() == std::vector<uint64_t>{4, 3, 2});
  REQUIRE(opened.store->Drop(5).ok());
  CHECK(opened.LiveSequences() == std::vector<uint64_t>{4, 3});
  REQUIRE(opened.Open().ok());
  CHECK(opened.LiveSequences() == std::vector<uint64_t>{4, 3});
}

TEST_CASE("Commit: stepping makes, renames and removes no file", "[store]") {
  SteppedStore opened(1);
  const std::vector<std::string> before = *opened.disk.files().List(ParentOf(opened.NewestFile(0)));
  for (int i = 0; i < 10; ++i) {
    REQUIRE(opened.Step().ok());
  }
  CHECK(*opened.disk.files().List(ParentOf(opened.NewestFile(0))) == before);
  CHECK(opened.FileCount(0) == 3);
}

TEST_CASE("Commit: a full disk does not stop stepping", "[store]") {
  SteppedStore opened(1, {.capacity_bytes = 330'000});
  opened.FillDisk();
  for (int i = 0; i < 6; ++i) {
    REQUIRE(opened.Step().ok());
  }
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
}

TEST_CASE("Commit: a bucket that is not rewritten is named again", "[store]") {
  SteppedStore opened;
  const std::string first = opened.NewestFile(0);
  const std::string second = opened.NewestFile(1);
  REQUIRE(opened.Step({true, false, false}).ok());
  CHECK(opened.NewestFile(0) != first);
  CHECK(opened.NewestFile(1) == second);
  REQUIRE(opened.Step({false, false, false}).ok());
  CHECK(opened.NewestFile(1) == second);
  REQUIRE(opened.Open().ok());
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
}

TEST_CASE("Commit: an uncommitted state may be the base of a committed one", "[store]") {
  SteppedStore opened;
  REQUIRE(opened.store->Drop(5).ok());
  auto five = opened.driver().BeginStepBehind(*opened.store->newest(), opened.expected, 5, false);
  REQUIRE(five.ok());
  REQUIRE(opened.driver().WriteAll(*five).ok());
  auto six =
      opened.driver().BeginStepBehind(five->state, five->expected, 6, true, {true, false, false});
  REQUIRE(six.ok());
  five->mutation.reset();
  REQUIRE(opened.driver().WriteAll(*six).ok());
  REQUIRE(opened.driver().Commit(*six).ok());
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->newest()->sequence == 6);
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), six->expected) == "");
}

TEST_CASE("Commit: files that an uncommitted state takes over outlive the record that named them",
          "[store]") {
  SteppedStore opened;
  REQUIRE(opened.store->Drop(5).ok());
  auto five = opened.driver().BeginStepBehind(*opened.store->newest(), opened.expected, 5, false);
  REQUIRE(five.ok());
  REQUIRE(opened.driver().WriteAll(*five).ok());
  REQUIRE(opened.driver().Commit(*five).ok());
  const std::string taken_over = opened.NewestFile(0);
  REQUIRE(opened.store->Drop(6).ok());
  auto six =
      opened.driver().BeginStepBehind(five->state, five->expected, 6, false, {false, true, true});
  REQUIRE(six.ok());
  REQUIRE(opened.driver().WriteAll(*six).ok());
  REQUIRE(opened.store->Drop(7).ok());  // the record of 5 was not due, that of 6 does not exist
  {
    auto rewriting = opened.driver().BeginStepBehind(six->state, six->expected, 7, false);
    REQUIRE(rewriting.ok());
    CHECK(rewriting->state.images[0]->file().path() != taken_over);
  }
  auto seven =
      opened.driver().BeginStepBehind(six->state, six->expected, 7, true, {false, true, false});
  REQUIRE(seven.ok());
  six->mutation.reset();
  REQUIRE(opened.driver().WriteAll(*seven).ok());
  REQUIRE(opened.driver().Commit(*seven).ok());
  CHECK(opened.NewestFile(0) == taken_over);
  CHECK(opened.FileCount(0) == 3);
  REQUIRE(opened.Open().ok());
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), seven->expected) == "");
}

TEST_CASE("Commit: a change that is given up gives its files back", "[store]") {
  SteppedStore opened;
  REQUIRE(opened.store->Drop(5).ok());
  for (int i = 0; i < 5; ++i) {
    auto step = opened.BeginNext();
    REQUIRE(step.ok());
    REQUIRE(opened.driver().WriteAll(*step).ok());
  }
  CHECK(opened.FileCount(0) == 3);
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
  CHECK(opened.Step().ok());
}

TEST_CASE("Commit: a change between two steps makes a fourth image, which Open removes",
          "[store]") {
  SteppedStore opened;
  auto change = opened.driver().BeginStepBehind(*opened.store->newest(), opened.expected, 4, true);
  REQUIRE(change.ok());
  CHECK(opened.FileCount(0) == 4);
  REQUIRE(opened.driver().WriteAll(*change).ok());
  REQUIRE(opened.driver().Commit(*change).ok());
  opened.expected = change->expected;
  CHECK(opened.LiveSequences() == std::vector<uint64_t>{4, 3, 2});
  const std::string newest = opened.NewestFile(0);
  REQUIRE(opened.Open().ok());
  CHECK(opened.FileCount(0) == 3);
  CHECK(opened.NewestFile(0) == newest);
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
  CHECK(opened.Step().ok());
}

TEST_CASE("Commit: file numbers are never used again", "[store]") {
  SteppedStore opened;
  std::set<std::string> seen;
  for (int i = 0; i < 4; ++i) {
    auto change = opened.driver().BeginStepBehind(*opened.store->newest(), opened.expected,
                                                  opened.expected.sequence, true);
    REQUIRE(change.ok());
    REQUIRE(opened.driver().WriteAll(*change).ok());
    REQUIRE(opened.driver().Commit(*change).ok());
    opened.expected = change->expected;
    CHECK(seen.insert(opened.NewestFile(0)).second);
    REQUIRE(opened.Open().ok());
    REQUIRE(opened.Step().ok());
    REQUIRE(opened.Step().ok());
  }
}

TEST_CASE("Commit: a fourth image without room is refused and the store goes on", "[store]") {
  SteppedStore opened(4, {.capacity_bytes = 330'000});
  opened.FillDisk();
  const auto change =
      opened.driver().BeginStepBehind(*opened.store->newest(), opened.expected, 4, true);
  CHECK(absl::IsResourceExhausted(change.status()));
  CHECK(opened.FileCount(0) == 3);
  CHECK(opened.Step().ok());
}

TEST_CASE("Commit: files that were pinned are not written, and go when nothing names them",
          "[store]") {
  SteppedStore opened;
  const std::string pinned = opened.NewestFile(0);
  io::FileSystem& files = opened.disk.files();
  REQUIRE(files.Link(pinned, "/state/saved").ok());
  REQUIRE(files.SetPermissions(pinned, 0440).ok());
  const std::vector<std::byte> content = opened.Content(pinned);
  REQUIRE(opened.Open().ok());
  CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
  CHECK(opened.FileCount(0) == 4);
  for (int i = 0; i < 6; ++i) {
    REQUIRE(opened.Step().ok());
  }
  CHECK(opened.Content("/state/saved") == content);
  REQUIRE(opened.Open().ok());
  CHECK(opened.FileCount(0) == 3);
  CHECK(absl::IsNotFound(files.Stat(pinned).status()));
  CHECK(opened.Content("/state/saved") == content);
}

TEST_CASE("Commit: due is marked by a record more", "[store]") {
  SteppedStore opened;
  REQUIRE(opened.store->Drop(5).ok());
  auto step = opened.driver().BeginStepBehind(*opened.store->newest(), opened.expected, 5, false);
  REQUIRE(opened.driver().WriteAll(*step).ok());
  REQUIRE(opened.driver().Commit(*step).ok());
  CHECK(!opened.store->newest()->due);
  REQUIRE(opened.store->MarkDue().ok());
  CHECK(opened.store->newest()->due);
  const uint64_t id = opened.store->newest()->id;
  REQUIRE(opened.store->MarkDue().ok());
  CHECK(opened.store->newest()->id == id);
  REQUIRE(opened.Open().ok());
  CHECK(opened.store->newest()->due);
}

TEST_CASE("Commit: what does not fit is refused and the store goes on", "[store]") {
  SteppedStore opened;
  REQUIRE(opened.store->Drop(5).ok());
  auto step = opened.BeginNext();
  REQUIRE(opened.driver().WriteAll(*step).ok());
  State state = step->state;
  state.blob = std::string(1025, 'x');
  CHECK(absl::IsInvalidArgument(opened.store->Commit(std::move(step->mutation), state)));
  step = opened.BeginNext();
  state = step->state;
  state.t.pop_back();
  CHECK(absl::IsInvalidArgument(opened.store->Commit(std::move(step->mutation), state)));
  step = opened.BeginNext();
  state = step->state;
  state.images.pop_back();
  CHECK(absl::IsInvalidArgument(opened.store->Commit(std::move(step->mutation), state)));
  step = opened.BeginNext();
  state = step->state;
  ++state.id;
  CHECK(absl::IsInvalidArgument(opened.store->Commit(std::move(step->mutation), state)));
  CHECK(opened.Step().ok());
}

TEST_CASE("Commit: a state that names a free file is refused", "[store]") {
  SteppedStore opened;
  const std::shared_ptr<const State> old = opened.store->newest();
  for (int i = 0; i < 3; ++i) {
    REQUIRE(opened.Step().ok());
  }
  REQUIRE(opened.store->Drop(8).ok());
  auto step = opened.BeginNext({false, true, true});
  REQUIRE(opened.driver().WriteAll(*step).ok());
  State state = step->state;
  state.images[0] = old->images[0];
  CHECK(absl::IsInvalidArgument(opened.store->Commit(std::move(step->mutation), state)));
}

TEST_CASE("Commit: without arrivals there is no room for a fifth record", "[store]") {
  SteppedStore opened(0);
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    auto step = opened.BeginNext({false, false, false});
    REQUIRE(opened.driver().Commit(*step).ok());
    opened.expected = step->expected;
  }
  auto step = opened.BeginNext({false, false, false});
  CHECK(absl::IsFailedPrecondition(opened.driver().Commit(*step)));
  opened.expected.sequence = 3;
  CHECK(opened.Step().ok());
}

TEST_CASE("Commit: changes that leave out a bucket without content are refused", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  const std::vector<bool> none(3, false);
  CHECK(absl::IsInvalidArgument(opened.store->Begin(nullptr, none, none).status()));
  const std::vector<bool> two(2, true);
  CHECK(absl::IsInvalidArgument(opened.store->Begin(nullptr, two, two).status()));
}

TEST_CASE("Commit: fresh files are told until they were handed out", "[store]") {
  OpenedStore opened;
  REQUIRE(opened.Open().ok());
  {
    const auto first = opened.driver().BeginRefresh(0);
    CHECK(first->state.images[0]->fresh());
  }
  REQUIRE(opened.driver().RefreshAndStep(3).ok());
  REQUIRE(opened.Open().ok());
  const auto again = opened.driver().BeginRefresh(0);
  REQUIRE(again.ok());
  CHECK(opened.store->newest()->images[0]->fresh() == false);
}

TEST_CASE("Commit: a failed sync closes the store, an Open goes on at the last commit", "[store]") {
  for (const char* where : {"bucket00000", "commit."}) {
    SteppedStore opened;
    REQUIRE(opened.store->Drop(5).ok());
    auto step = opened.BeginNext();
    REQUIRE(opened.driver().WriteAll(*step).ok());
    opened.disk.FailNext(io::IoOp::kSync, where, absl::InternalError("sync failed"));
    CHECK(absl::IsInternal(opened.driver().Commit(*step)));
    for (const absl::Status& status :
         {opened.store->Drop(5), opened.BeginNext().status(), opened.store->MarkDue(),
          opened.store->Rollback(4).status()}) {
      CHECK(absl::IsFailedPrecondition(status));
      CHECK(status.message().find("sync failed") != absl::string_view::npos);
    }
    CHECK(opened.store->newest()->sequence == 4);
    REQUIRE(opened.Open().ok());
    CHECK(opened.store->newest()->sequence >= 4);
    opened.expected = opened.store->newest()->sequence == 4 ? opened.expected : step->expected;
    CHECK(CompareState(opened.disk.engine(), *opened.store->newest(), opened.expected) == "");
    CHECK(opened.Step().ok());
  }
}

TEST_CASE("Commit: a failed erasure closes the store", "[store]") {
  SteppedStore opened;
  opened.disk.FailNext(io::IoOp::kSync, "commit.", absl::InternalError("sync failed"));
  CHECK(absl::IsInternal(opened.store->Drop(5)));
  CHECK(absl::IsFailedPrecondition(opened.store->Drop(5)));
}

TEST_CASE("Commit: a failed write of a change leaves the store open", "[store]") {
  SteppedStore opened;
  REQUIRE(opened.store->Drop(5).ok());
  {
    auto step = opened.BeginNext();
    opened.disk.FailNext(io::IoOp::kWrite, "bucket", absl::InternalError("write failed"));
    CHECK(absl::IsInternal(opened.driver().WriteAll(*step)));
  }
  CHECK(opened.Step().ok());
}

TEST_CASE("Rollback: a sequence that is not live is not found; the live ones are named",
          "[store]") {
  SteppedStore opened;
  const absl::Status status = opened.store->Rollback(9).status();
  CHECK(absl::IsNotFound(status));
  CHECK(status.message().find("[4, 3, 2]") != absl::string_view::npos);
}

TEST_CASE("Rollback: what came after it is gone, and stepping goes on from there", "[store]") {
  SteppedStore opened;
  auto state = opened.store->Rollback(2);
  REQUIRE(state.ok());
  CHECK(opened.LiveSequences() == std::vector<uint64_t>{2});
  CHECK((*state)->blob == "blob of 3");
  CHECK((*state)->t == std::vector<uint64_t>{2, 2, 2, 2});
  CHECK((*state)->images[0]->written_by() == 3);
  REQUIRE(opened.Open().ok());
  CHECK(opened.LiveSequences() == std::vector<uint64_t>{2});
  REQUIRE(opened.store->Drop(3).ok());
}

TEST_CASE("Superset: a rollback behind it takes its tensors out again", "[store]") {
  SteppedStore opened;
  OpenParameters larger = SmallStore();
  larger.tensors.push_back(MakeTensor("more", 1, {12}));
  REQUIRE(opened.Open(larger).ok());
  const std::shared_ptr<const State> base = opened.store->newest();
  const std::vector<bool> added = {false, false, false, true};
  auto mutation = opened.store->Begin(base.get(), added, added);
  REQUIRE(mutation.ok());
  DrivenStep step;
  step.state = *base;
  step.state.id = (*mutation)->id();
  step.state.layout = opened.store->layout();
  step.state.images = (*mutation)->images();
  step.state.t.push_back(0);
  step.expected.seeds = {0, 0, 0, 5};
  step.mutation = *std::move(mutation);
  REQUIRE(opened.driver().WriteAll(step).ok());
  REQUIRE(opened.driver().Commit(step).ok());
  CHECK(opened.store->added_tensors().empty());
  REQUIRE(opened.store->Rollback(3).ok());
  CHECK(opened.store->added_tensors() == std::vector<uint32_t>{4});
  REQUIRE(opened.Open(larger).ok());
  CHECK(opened.store->added_tensors() == std::vector<uint32_t>{4});
  CHECK(opened.store->newest()->layout->buckets().size() == 3);
}

}  // namespace
}  // namespace moment::store
