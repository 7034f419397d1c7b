// Whatever fails, the last applied state stays, and nothing is computed with bad data.
#include <algorithm>
#include <random>
#include <string>
#include <thread>

#include "daemon/base/failpoint.h"
#include "tests/pipeline/held_engine.h"
#include "tests/pipeline/rig.h"
#include "tests/support/catch.h"

namespace moment::pipeline {
namespace {

using Catch::Matchers::Contains;

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Seven chunks through four frames: everything streams.
RigOptions Streaming() {
  RigOptions options;
  options.sizes = {1'200'000, 5, 400'000};
  options.host_memory_bytes = 12 * kMiB;
  options.trainer.slot_bytes = 512 << 10;
  return options;
}

struct Bench {
  explicit Bench(const RigOptions& options, const io::SimulatedFaults& faults = {})
      : disk(faults), machine(disk, options), rig(machine, options) {
    REQUIRE(rig.Open() == absl::OkStatus());
    REQUIRE(rig.Fill() == absl::OkStatus());
  }
  io::SimulatedDisk disk;
  Machine machine;
  Rig rig;
};

void CheckEverything(Rig& rig, uint64_t sequence) {
  REQUIRE(rig.pipeline->Flush(sequence).status() == absl::OkStatus());
  CHECK(rig.ParametersDiffer() == "");
  CHECK(rig.FilesDiffer() == "");
}

TEST_CASE("Faults: a bucket file that became shorter is DATA_LOSS naming it", "[pipeline]") {
  const uint64_t cut = GENERATE(uint64_t{4096}, UINT64_MAX);
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Flush(1).ok());
  std::vector<std::byte> original;
  const std::string path = rig.BucketPath(0);
  bench.disk.Corrupt(path, [&](std::vector<std::byte>& bytes) {
    original = bytes;
    bytes.resize(bytes.size() - std::min<uint64_t>(cut, bytes.size()));
  });
  const absl::Status status = rig.Step(2).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()), Contains(path) && Contains("offset"));
  CHECK(rig.sequence() == 1);
  bench.disk.Corrupt(path, [&](std::vector<std::byte>& bytes) { bytes = original; });
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CheckEverything(rig, 2);
}

TEST_CASE("Faults: a flipped bit is DATA_LOSS naming file and offset", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Flush(1).ok());
  const auto& geometry = rig.pipeline->store().layout()->buckets()[0];
  const int segment = GENERATE(0, 1, 2);
  const uint64_t offset = geometry.segments[segment].offset + 5 * kMiB + 12345;
  auto flip = [&](std::vector<std::byte>& bytes) { bytes[offset] ^= std::byte{16}; };
  bench.disk.Corrupt(rig.BucketPath(0), flip);
  const absl::Status status = rig.Step(2).status();
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()),
             Contains(rig.BucketPath(0)) && Contains(store::SegmentName(segment)) &&
                 Contains(std::to_string(geometry.segments[segment].offset + 5 * kMiB)));
  bench.disk.Corrupt(rig.BucketPath(0), flip);
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CheckEverything(rig, 2);
}

TEST_CASE("Faults: a trainer that goes at any command leaves the applied state", "[pipeline]") {
  RigOptions options = Streaming();
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  rig.SetGradients(2);
  const uint64_t before = rig.trainer->commands();
  REQUIRE(rig.Step(2).ok());
  const uint64_t commands = rig.trainer->commands() - before;
  uint64_t sequence = 2;
  for (uint64_t at = 0; at < commands; at += 1 + commands / 8) {
    INFO("gone at command " << at << " of " << commands);
    ++sequence;
    rig.trainer->Break(at);
    CHECK(rig.Step(sequence).status().code() == absl::StatusCode::kAborted);
    CHECK(rig.sequence() == sequence - 1);
    rig.trainer->Mend();
    REQUIRE(rig.Step(sequence).status() == absl::OkStatus());
    CHECK(rig.ParametersDiffer() == "");
  }
  CheckEverything(rig, sequence);
}

TEST_CASE("Faults: Abort ends the running step with its status, not the next", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  rig.pipeline->Abort(absl::AbortedError("nothing runs: no effect"));
  rig.trainer->Hold();
  absl::Status status;
  std::thread step([&] { status = rig.Step(2).status(); });
  while (rig.pipeline->Status().activity != "step") {
    std::this_thread::yield();
  }
  rig.pipeline->Abort(absl::CancelledError("the session ended"));
  rig.trainer->Break();
  step.join();
  CHECK(status == absl::CancelledError("the session ended"));
  CHECK(rig.sequence() == 1);
  rig.trainer->Mend();
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CheckEverything(rig, 2);
}

TEST_CASE("Faults: after any transfer that fails the store is at a whole step", "[pipeline]") {
  const auto op = GENERATE(io::IoOp::kRead, io::IoOp::kWrite, io::IoOp::kSync);
  const std::string file = GENERATE("bucket", "commit.");
  RigOptions options = Streaming();
  options.sizes = {900'000, 9, 490'000};
  options.bucket_elements = 700'000;
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  uint64_t sequence = 0;
  for (int round = 0; round < 4; ++round) {
    INFO("op " << static_cast<int>(op) << " of " << file << ", round " << round);
    bench.disk.FailNext(op, file, absl::InternalError("planted: input/output error"));
    uint64_t answered = sequence;
    for (int i = 0; i < 2 && rig.Step(sequence + 1).ok(); ++i) {
      answered = ++sequence;
    }
    const absl::Status flushed = rig.pipeline->Flush(rig.sequence()).status();
    if (!rig.pipeline->Status().failure.empty()) {
      CHECK(rig.Step(rig.sequence() + 1).status().code() == absl::StatusCode::kFailedPrecondition);
    }
    if (!rig.Reopen().ok()) {  // the planted error came only here
      REQUIRE(rig.Reopen() == absl::OkStatus());
    }
    CHECK(rig.sequence() + 1 >= answered);
    CHECK(rig.sequence() <= answered);
    CHECK((!flushed.ok() || rig.sequence() == answered));
    CHECK(rig.FilesDiffer() == "");
    sequence = rig.sequence();
    REQUIRE(rig.Step(++sequence).status() == absl::OkStatus());
    CHECK(rig.ParametersDiffer() == "");
  }
}

TEST_CASE("Faults: power lost at any operation leaves a whole step", "[pipeline]") {
  const uint64_t commit_every = GENERATE(as<uint64_t>{}, 1, 3);
  RigOptions options = Streaming();
  options.sizes = {600'000, 9, 290'000};
  options.bucket_elements = 400'000;
  options.commit_every = commit_every;
  constexpr uint64_t kSteps = 5;
  uint64_t first = 0;
  uint64_t last = 0;
  std::map<uint64_t, Reference> history;
  {
    Bench bench(options);
    first = bench.disk.operations() + 1;
    for (uint64_t s = 1; s <= kSteps; ++s) {
      REQUIRE(bench.rig.Step(s).ok());
    }
    REQUIRE(bench.rig.pipeline->Drain().ok());
    last = bench.disk.operations();
    history = bench.rig.history;
  }
  const uint64_t seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 12; ++round) {
    const uint64_t cut = first + random() % (last - first + 1);
    const uint64_t choice = random() % 4;
    INFO("commit_every " << commit_every << ", power lost before operation " << cut << ", choice "
                         << choice);
    io::SimulatedFaults faults;
    faults.seed = random();
    faults.reorder = true;
    std::unique_ptr<io::SimulatedDisk> after;
    uint64_t answered = 0;
    {
      Bench bench(options, faults);
      bench.disk.CutPowerBefore(cut);
      while (answered < kSteps && bench.rig.Step(answered + 1).ok()) {
        ++answered;
      }
      after = bench.disk.AfterCrash(choice);
    }
    Machine machine(*after, options);
    Rig rig(machine, options);
    rig.history = history;
    REQUIRE(rig.Open() == absl::OkStatus());
    const uint64_t sequence = rig.sequence();
    // Answering N promises every due commit up to N - 1.
    const uint64_t promised = answered == 0 ? 0 : (answered - 1) / commit_every * commit_every;
    CHECK(sequence >= promised);
    CHECK(sequence <= answered + 1);
    REQUIRE(history.count(sequence) == 1);
    rig.reference = history.at(sequence);
    CHECK(rig.FilesDiffer() == "");
    rig.trainer->parameters.clear();
    for (size_t i = 0; i < options.sizes.size(); ++i) {
      rig.trainer->parameters.push_back(std::vector<std::byte>(rig.reference.Parameter(i).size()));
    }
    REQUIRE(rig.pipeline->Materialize({}) == absl::OkStatus());
    CHECK(rig.ParametersDiffer() == "");
    REQUIRE(rig.Step(sequence + 1).status() == absl::OkStatus());
    CheckEverything(rig, sequence + 1);
  }
}

// Step 3 is computed while the frames of step 2 are on their way to the disk.
std::string StateOfStepTwo(const std::string& failpoints) {
  RigOptions options;
  options.sizes = {500'000};
  io::SimulatedDisk disk;
  HeldEngine engine(disk.engine());
  Machine machine(disk, options, &engine);
  Rig rig(machine, options);
  REQUIRE(rig.Open() == absl::OkStatus());
  REQUIRE(rig.Fill() == absl::OkStatus());
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Flush(1).ok());
  engine.HoldWrites("bucket");
  const uint64_t before = rig.trainer->commands();
  REQUIRE(rig.Step(2).ok());
  const uint64_t commands = rig.trainer->commands() - before;
  const Reference second = rig.reference;
  REQUIRE(base::ArmFailpoints(failpoints) == absl::OkStatus());
  absl::Status third;
  std::thread step([&] { third = rig.Step(3).status(); });
  rig.trainer->WaitForCommands(before + 2 * commands);
  engine.Release();
  step.join();
  REQUIRE(base::ArmFailpoints("") == absl::OkStatus());
  CHECK(third == absl::OkStatus());
  REQUIRE(rig.pipeline->Flush(3).ok());
  CHECK(rig.FilesDiffer() == "");
  REQUIRE(rig.pipeline->Rollback(2).ok());
  rig.reference = second;
  return rig.FilesDiffer();
}

TEST_CASE("Faults: a frame that is being written is never updated in place", "[pipeline]") {
  CHECK(StateOfStepTwo("") == "");
}

TEST_CASE("Faults: a planted update of a frame that is being written is seen", "[pipeline]") {
  CHECK(StateOfStepTwo("pipeline.update_writing_frame=error") != "");
}

}  // namespace
}  // namespace moment::pipeline
