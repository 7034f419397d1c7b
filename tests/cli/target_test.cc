#include "daemon/cli/target.h"

#include <filesystem>
#include <fstream>

#include "tests/cli/scratch.h"
#include "tests/support/catch.h"

namespace moment::cli {
namespace {

namespace fs = std::filesystem;

void Touch(const fs::path& path) { std::ofstream file(path); }

TEST_CASE("ParseTarget: job/role/rank is a store", "[cli]") {
  const Target target = ParseTarget("run 7/model/12");
  REQUIRE(target.kind == Target::Kind::kStore);
  CHECK(target.name.job() == "run 7");
  CHECK(target.name.role() == "model");
  CHECK(target.name.rank() == 12);
  CHECK(NameText(target.name) == "run 7/model/12");
}

TEST_CASE("ParseTarget: the job may contain slashes", "[cli]") {
  const Target target = ParseTarget("team/run/model/0");
  REQUIRE(target.kind == Target::Kind::kStore);
  CHECK(target.name.job() == "team/run");
}

TEST_CASE("ParseTarget: what begins with a slash or a dot is a path", "[cli]") {
  CHECK(ParseTarget("/a/model/0").kind == Target::Kind::kPath);
  CHECK(ParseTarget("./a/model/0").kind == Target::Kind::kPath);
}

TEST_CASE("ParseTarget: what has no rank is a path", "[cli]") {
  CHECK(ParseTarget("a/model/rank00000").kind == Target::Kind::kPath);
  CHECK(ParseTarget("bucket00000.1.safetensors").kind == Target::Kind::kPath);
  CHECK(ParseTarget("a/0").kind == Target::Kind::kPath);
  CHECK(ParseTarget("a//0").kind == Target::Kind::kPath);
  CHECK(ParseTarget("a/model/").kind == Target::Kind::kPath);
  CHECK(ParseTarget("a/model/4294967296").kind == Target::Kind::kPath);
  CHECK(ParseTarget("a/model/-1").kind == Target::Kind::kPath);
}

TEST_CASE("ParseTarget: nothing is everything", "[cli]") {
  CHECK(ParseTarget("").kind == Target::Kind::kEverything);
}

TEST_CASE("ClassifyPath: finds the kind, the store and the state directory above", "[cli]") {
  const Scratch scratch;
  const fs::path state = scratch.path() / "state";
  const fs::path store = state / "jobs/j/model/rank00000";
  fs::create_directories(store / "opt0_0");
  Touch(state / "LOCK");
  Touch(store / "store.json");
  Touch(store / "commit.0");
  Touch(store / "opt0_0/bucket00000.1.safetensors");

  const auto of_state = ClassifyPath(state.string());
  REQUIRE(of_state.ok());
  CHECK(of_state->kind == PathTarget::Kind::kStateDirectory);
  CHECK(of_state->state_directory == state.string());

  const auto of_store = ClassifyPath(store.string());
  REQUIRE(of_store.ok());
  CHECK(of_store->kind == PathTarget::Kind::kStore);
  CHECK(of_store->store_directory == store.string());
  CHECK(of_store->state_directory == state.string());

  const auto of_bucket = ClassifyPath((store / "opt0_0/bucket00000.1.safetensors").string());
  REQUIRE(of_bucket.ok());
  CHECK(of_bucket->kind == PathTarget::Kind::kBucketFile);
  CHECK(of_bucket->store_directory == store.string());

  const auto of_commit = ClassifyPath((store / "commit.0").string());
  REQUIRE(of_commit.ok());
  CHECK(of_commit->kind == PathTarget::Kind::kCommitFile);
  CHECK(of_commit->store_directory == store.string());
}

TEST_CASE("ClassifyPath: follows symbolic links to where the files are", "[cli]") {
  const Scratch scratch;
  const fs::path state = scratch.path() / "state";
  fs::create_directories(state / "jobs");
  Touch(state / "LOCK");
  fs::create_symlink(state, scratch.path() / "link");
  const auto target = ClassifyPath((scratch.path() / "link").string());
  REQUIRE(target.ok());
  CHECK(target->path == state.string());
}

TEST_CASE("ClassifyPath: a missing path is NOT_FOUND, another thing INVALID_ARGUMENT", "[cli]") {
  const Scratch scratch;
  CHECK(absl::IsNotFound(ClassifyPath((scratch.path() / "none").string()).status()));
  CHECK(absl::IsInvalidArgument(ClassifyPath(scratch.path().string()).status()));
  Touch(scratch.path() / "notes.txt");
  CHECK(absl::IsInvalidArgument(ClassifyPath((scratch.path() / "notes.txt").string()).status()));
}

}  // namespace
}  // namespace moment::cli
