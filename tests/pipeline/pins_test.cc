// Pins of a pipeline: what they hold while steps go on.
#include <string>
#include <utility>

#include "tests/pipeline/rig.h"
#include "tests/support/catch.h"

namespace moment::pipeline {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct PinBench {
  explicit PinBench(const RigOptions& options) : machine(disk, options), rig(machine, options) {
    REQUIRE(rig.Open() == absl::OkStatus());
  }

  absl::Status Pin(const std::string& id) {
    store::PinParameters parameters;
    parameters.id = id;
    return rig.pipeline->Pin(parameters).status();
  }
  // The first difference between what the pin's links hold and the reference of its sequence.
  std::string PinDiffers(const std::string& id) {
    for (const auto& pin : rig.pipeline->store().pins()) {
      if (pin->id == id) {
        return PinDiffers(*pin);
      }
    }
    return "no such pin";
  }
  std::string PinDiffers(const store::PinnedCommit& pin) {
    auto files = rig.pipeline->store().OpenPinned(pin.id, 0, 100);
    if (!files.ok()) {
      return files.status().ToString();
    }
    store::State state;
    state.layout = pin.layout;
    state.t = pin.t;
    for (uint32_t bucket = 0; bucket < files->size(); ++bucket) {
      state.images.push_back(std::make_shared<store::BucketImage>(
          bucket, pin.files[bucket], 0, false, false, std::move((*files)[bucket]), 0));
    }
    const Reference now = std::exchange(rig.reference, rig.history.at(pin.commit.sequence()));
    std::string difference = rig.StateDiffers(state);
    rig.reference = now;
    return difference;
  }
  void Steps(uint64_t first, uint64_t last) {
    for (uint64_t sequence = first; sequence <= last; ++sequence) {
      REQUIRE(rig.Step(sequence).status() == absl::OkStatus());
    }
  }
  uint64_t FreeBytes() { return disk.files().FreeSpace("/state")->free_bytes; }

  io::SimulatedDisk disk;
  Machine machine;
  Rig rig;
};

RigOptions Buckets(uint64_t commit_every, uint64_t host_memory_bytes) {
  RigOptions options;
  options.sizes = {1'200'000, 5, 400'000};
  options.bucket_elements = 900'000;
  options.commit_every = commit_every;
  options.host_memory_bytes = host_memory_bytes;
  return options;
}

TEST_CASE("Pin: it holds the last applied step while others follow", "[pipeline]") {
  const uint64_t commit_every = GENERATE(as<uint64_t>{}, 1, 0, 3);
  const uint64_t host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  PinBench bench(Buckets(commit_every, host_memory_bytes));
  REQUIRE(bench.rig.Fill().ok());
  bench.Steps(1, 2);
  REQUIRE(bench.Pin("two") == absl::OkStatus());
  CHECK(bench.PinDiffers("two") == "");
  bench.Steps(3, 4);
  REQUIRE(bench.Pin("four") == absl::OkStatus());
  bench.Steps(5, 9);
  CHECK(bench.PinDiffers("two") == "");
  CHECK(bench.PinDiffers("four") == "");
  REQUIRE(bench.rig.pipeline->Flush(9).ok());
  CHECK(bench.rig.ParametersDiffer() == "");
  CHECK(bench.rig.FilesDiffer() == "");
}

TEST_CASE("Pin: it commits what it holds, without making it due", "[pipeline]") {
  PinBench bench(Buckets(0, 100 * kMiB));
  REQUIRE(bench.rig.Fill().ok());
  bench.Steps(1, 2);
  CHECK(bench.rig.pipeline->store().newest()->sequence == 0);
  REQUIRE(bench.Pin("two") == absl::OkStatus());
  CHECK(bench.rig.pipeline->store().newest()->sequence == 2);
  CHECK(!bench.rig.pipeline->store().newest()->due);
  const auto pin = bench.rig.pipeline->store().pins().front();
  CHECK(pin->commit.sequence() == 2);
  CHECK(!pin->commit.due());
  CHECK(pin->t == std::vector<uint64_t>{2, 2, 2});
  REQUIRE(bench.rig.pipeline->Flush(2).ok());
  CHECK(bench.rig.pipeline->store().newest()->due);
  CHECK(bench.PinDiffers("two") == "");
}

TEST_CASE("Pin: the start, whose moments are zero, holds zeros", "[pipeline]") {
  PinBench bench(Buckets(1, 12 * kMiB));
  REQUIRE(bench.rig.Fill().ok());
  REQUIRE(bench.Pin("start") == absl::OkStatus());
  CHECK(bench.PinDiffers("start") == "");
  bench.Steps(1, 4);
  REQUIRE(bench.rig.Fill(2).ok());  // over files that hold moments
  REQUIRE(bench.Pin("again") == absl::OkStatus());
  CHECK(bench.PinDiffers("again") == "");
}

// The record that a pin makes is not due: it is erased two steps later, although a state that no
// commit names may still take over its files.
TEST_CASE("Pin: buckets that sit out behind it stay readable until they are committed",
          "[pipeline]") {
  PinBench bench(Buckets(0, GENERATE(as<uint64_t>{}, 12, 100) * kMiB));
  REQUIRE(bench.rig.Fill().ok());
  bench.Steps(1, 1);
  REQUIRE(bench.Pin("one") == absl::OkStatus());
  REQUIRE(bench.rig.pipeline->Unpin("one").ok());
  bench.rig.sits_out = {0, 1};
  bench.Steps(2, 4);
  bench.rig.sits_out.clear();
  bench.Steps(5, 5);
  bench.rig.sits_out = {2};
  bench.Steps(6, 7);
  REQUIRE(bench.rig.pipeline->Flush(7).status() == absl::OkStatus());
  CHECK(bench.rig.ParametersDiffer() == "");
  CHECK(bench.rig.FilesDiffer() == "");
  REQUIRE(bench.rig.Reopen() == absl::OkStatus());
  CHECK(bench.rig.FilesDiffer() == "");
}

TEST_CASE("Pin: what a dropped one held is given back behind the steps", "[pipeline]") {
  PinBench bench(Buckets(1, 12 * kMiB));
  REQUIRE(bench.rig.Fill().ok());
  bench.Steps(1, 3);
  const uint64_t base = bench.FreeBytes();
  for (uint64_t sequence = 4; sequence <= 20; ++sequence) {
    REQUIRE(bench.Pin("again") == absl::OkStatus());
    bench.Steps(sequence, sequence);
    CHECK(bench.PinDiffers("again") == "");
    REQUIRE(bench.rig.pipeline->Unpin("again").ok());
  }
  bench.Steps(21, 23);
  bench.rig.Close();  // waits for the sweeps
  CHECK(bench.FreeBytes() == base);
}

TEST_CASE("Pin: a commit that fails is no pin", "[pipeline]") {
  PinBench bench(Buckets(0, 100 * kMiB));
  REQUIRE(bench.rig.Fill().ok());
  bench.Steps(1, 1);
  bench.disk.FailNext(io::IoOp::kSync, "bucket", absl::InternalError("sync failed"));
  const absl::Status status = bench.Pin("one");
  CHECK(absl::IsInternal(status));
  CHECK(bench.rig.pipeline->store().pins().empty());
  CHECK(absl::IsFailedPrecondition(bench.Pin("two")));
}

TEST_CASE("Pin: an empty store is refused, an unknown pin is not found", "[pipeline]") {
  PinBench bench(Buckets(1, 12 * kMiB));
  CHECK(absl::IsFailedPrecondition(bench.Pin("one")));
  CHECK(absl::IsNotFound(bench.rig.pipeline->Unpin("one")));
}

}  // namespace
}  // namespace moment::pipeline
