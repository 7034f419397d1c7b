// What each call of StatePipeline promises.
#include <string>
#include <thread>

#include "tests/pipeline/rig.h"
#include "tests/support/catch.h"

namespace moment::pipeline {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Bench {
  explicit Bench(const RigOptions& options) : machine(disk, options), rig(machine, options) {
    REQUIRE(rig.Open() == absl::OkStatus());
  }
  io::SimulatedDisk disk;
  Machine machine;
  Rig rig;
};

RigOptions Streaming() {
  RigOptions options;
  options.sizes = {1'200'000, 5, 400'000};  // seven chunks through four frames
  options.host_memory_bytes = 12 * kMiB;
  return options;
}

void CheckFlushed(Rig& rig) {
  REQUIRE(rig.pipeline->Flush(rig.sequence()).status() == absl::OkStatus());
  CHECK(rig.ParametersDiffer() == "");
  CHECK(rig.FilesDiffer() == "");
}

uint64_t SegmentBytes(const Rig& rig, int segments) {
  uint64_t bytes = 0;
  for (const auto& bucket : rig.pipeline->store().layout()->buckets()) {
    for (int s = 0; s < segments; ++s) {
      bytes += bucket.segments[s].length_bytes;
    }
  }
  return bytes;
}

TEST_CASE("Step: the first reads mains alone, later ones and a resume all segments", "[pipeline]") {
  RigOptions options = Streaming();
  options.sizes = {2'000'000, 5, 600'000};  // what was read ahead is gone before the step ends
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  REQUIRE(rig.Reopen() == absl::OkStatus());
  const auto first = rig.Step(1);
  REQUIRE(first.ok());
  CHECK(first->bytes_read() == SegmentBytes(rig, 1));
  CHECK(first->bytes_written() == SegmentBytes(rig, 3));
  const auto second = rig.Step(2);
  REQUIRE(second.ok());
  CHECK(second->bytes_read() == SegmentBytes(rig, 3));
  CHECK(second->bytes_written() == SegmentBytes(rig, 3));
  REQUIRE(rig.pipeline->Drain().ok());
  REQUIRE(rig.Reopen() == absl::OkStatus());
  REQUIRE(rig.pipeline->Materialize({}) == absl::OkStatus());  // its reads are not the step's
  const uint64_t before = bench.machine.node->BytesRead("/state");
  const auto resumed = rig.Step(3);
  REQUIRE(resumed.ok());
  CHECK(resumed->bytes_read() == SegmentBytes(rig, 3));
  CHECK(bench.machine.node->BytesRead("/state/") >= before);
  CheckFlushed(rig);
}

TEST_CASE("Step: a state that fits the pool is read once and never again", "[pipeline]") {
  RigOptions options = Streaming();
  options.host_memory_bytes = 100 * kMiB;
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.Reopen() == absl::OkStatus());
  const uint64_t next = rig.sequence() + 1;
  const auto first = rig.Step(next);
  REQUIRE(first.ok());
  CHECK(first->bytes_read() == (next == 1 ? SegmentBytes(rig, 1) : SegmentBytes(rig, 3)));
  const auto second = rig.Step(next + 1);
  REQUIRE(second.ok());
  CHECK(second->bytes_read() == 0);
  CHECK(second->bytes_written() == (options.commit_every == 1 ? SegmentBytes(rig, 3) : 0));
  CheckFlushed(rig);
}

TEST_CASE("Step: tensors that sit out keep their state and t, untouched buckets their files",
          "[pipeline]") {
  RigOptions options = Streaming();
  options.bucket_elements = 900'000;
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 3);
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  for (uint64_t sequence = 1; sequence <= 8; ++sequence) {
    rig.sits_out.clear();
    if (sequence % 4 != 0) {
      rig.sits_out.push_back(sequence % 3);
    }
    if (sequence % 4 == 2) {
      rig.sits_out = {0, 1, 2};
    }
    INFO("sequence " << sequence);
    REQUIRE(rig.Step(sequence).status() == absl::OkStatus());
    CHECK(rig.ParametersDiffer() == "");
  }
  CheckFlushed(rig);
  const auto before = rig.pipeline->store().newest()->images;
  rig.sits_out = {0, 1};  // tensor 2 lies in the last bucket alone
  const auto statistics = rig.Step(9);
  REQUIRE(statistics.ok());
  CheckFlushed(rig);
  const auto after = rig.pipeline->store().newest()->images;
  CHECK(after[0]->file_number() == before[0]->file_number());
  CHECK(after.back()->file_number() != before.back()->file_number());
}

TEST_CASE("Step: buckets are reported final, each once", "[pipeline]") {
  RigOptions options = Streaming();
  options.bucket_elements = 900'000;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  rig.SetGradients(1);
  StepParameters step = rig.MakeStep(1);
  std::vector<int> reported(rig.pipeline->store().layout()->buckets().size());
  step.bucket_final = [&](uint32_t bucket) { ++reported[bucket]; };
  REQUIRE(rig.pipeline->Step(step).ok());
  CHECK(reported == std::vector<int>(reported.size(), 1));
}

TEST_CASE("Step: is refused without a state and without the trainer's memory", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  rig.SetGradients(1);
  CHECK(rig.pipeline->Step(rig.MakeStep(1)).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  REQUIRE(rig.Fill().ok());
  rig.pipeline->Detach();
  CHECK(rig.pipeline->Step(rig.MakeStep(1)).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  rig.Attach();
  CHECK(rig.Step(1).ok());
}

TEST_CASE("Step: groups beyond the hyperparameters and small slots are refused", "[pipeline]") {
  RigOptions options = Streaming();
  options.trainer.slot_bytes = 4096;
  Bench bench(options);
  Rig& rig = bench.rig;
  CHECK(rig.Fill().code() == absl::StatusCode::kInvalidArgument);
  auto larger = std::make_shared<MemoryTrainer>(MemoryTrainer::Options{});
  larger->parameters = rig.trainer->parameters;
  larger->gradients = rig.trainer->gradients;
  rig.trainer = larger;
  rig.Attach();
  REQUIRE(rig.Fill().ok());
  rig.SetGradients(1);
  StepParameters step = rig.MakeStep(1);
  step.group_of[0] = 2;
  CHECK(rig.pipeline->Step(step).status().code() == absl::StatusCode::kInvalidArgument);
  CHECK(rig.Step(1).ok());
}

TEST_CASE("Skip: advances sequence and blob, changes no byte and no t", "[pipeline]") {
  RigOptions options = Streaming();
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 2, 0);
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  REQUIRE(rig.Step(1).ok());
  for (uint64_t sequence = 2; sequence <= 9; ++sequence) {
    INFO("sequence " << sequence);
    if (sequence % 3 == 0) {
      REQUIRE(rig.Step(sequence).status() == absl::OkStatus());
      continue;
    }
    REQUIRE(rig.pipeline->Skip(sequence, StepId(sequence), "skipped") == absl::OkStatus());
    rig.history.insert_or_assign(sequence, rig.reference);
    CHECK(rig.sequence() == sequence);
    CHECK(rig.pipeline->applied()->step_id == StepId(sequence));
    CHECK(rig.pipeline->applied_blob() == "skipped");
  }
  REQUIRE(rig.pipeline->Skip(10, StepId(10), "last") == absl::OkStatus());
  CheckFlushed(rig);
  rig.history.insert_or_assign(10, rig.reference);
  REQUIRE(rig.Reopen() == absl::OkStatus());
  CHECK(rig.sequence() == 10);
  CHECK(rig.pipeline->applied_blob() == "last");
  REQUIRE(rig.Step(11).ok());
  CheckFlushed(rig);
}

TEST_CASE("Flush: makes the applied state durable and due, and takes no other sequence",
          "[pipeline]") {
  RigOptions options = Streaming();
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 3, 0);
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  REQUIRE(rig.Step(1).ok());
  CHECK(rig.pipeline->Flush(2).status().code() == absl::StatusCode::kFailedPrecondition);
  const auto commit = rig.pipeline->Flush(1);
  REQUIRE(commit.status() == absl::OkStatus());
  CHECK(commit->sequence() == 1);
  CHECK(commit->due());
  CHECK(commit->step_id() == StepId(1));
  CHECK(rig.pipeline->Flush(1)->id() == commit->id());
  REQUIRE(rig.Step(2).ok());
  REQUIRE(rig.pipeline->Drain().ok());  // committed, and due only if it is so anyway
  CHECK(rig.pipeline->store().newest()->due == (options.commit_every == 1));
  const auto marked = rig.pipeline->Flush(2);
  REQUIRE(marked.status() == absl::OkStatus());
  CHECK(marked->due());
  REQUIRE(rig.Step(3).ok());
  CheckFlushed(rig);
}

TEST_CASE("Drain: the last applied step survives without a Flush", "[pipeline]") {
  RigOptions options = Streaming();
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 5, 0);
  Bench bench(options);
  Rig& rig = bench.rig;
  CHECK(rig.pipeline->Drain().ok());
  REQUIRE(rig.Fill().ok());
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.Step(2).ok());
  REQUIRE(rig.pipeline->Drain() == absl::OkStatus());
  REQUIRE(rig.Reopen() == absl::OkStatus());
  CHECK(rig.sequence() == 2);
  CHECK(rig.FilesDiffer() == "");
}

TEST_CASE("Refresh: listed tensors take new mains and keep moments and t", "[pipeline]") {
  RigOptions options = Streaming();
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  options.bucket_elements = 900'000;
  const uint64_t steps = GENERATE(as<uint64_t>{}, 0, 2);
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  for (uint64_t s = 1; s <= steps; ++s) {
    REQUIRE(rig.Step(s).ok());
  }
  rig.trainer->parameters[1] = RandomValues(77, options.sizes[1], options.types.parameter);
  rig.reference.Refresh(1, rig.trainer->parameters[1], /*keep=*/true);
  RefreshParameters refresh;
  refresh.tensors = {false, true, false};
  const auto commit = rig.pipeline->Refresh(refresh);
  REQUIRE(commit.status() == absl::OkStatus());
  CHECK(commit->sequence() == steps);
  CHECK(rig.FilesDiffer() == "");
  REQUIRE(rig.Step(steps + 1).status() == absl::OkStatus());
  CheckFlushed(rig);
}

TEST_CASE("Refresh: listed tensors keep the low bits of mains that their parameters come from",
          "[pipeline]") {
  RigOptions options = Streaming();
  options.types.parameter = GENERATE(device::DataType::kBFloat16, device::DataType::kFloat16);
  options.types.gradient = options.types.parameter;
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  REQUIRE(rig.Step(1).ok());
  const Reference stepped = rig.reference;
  RefreshParameters refresh;
  refresh.tensors = {true, true, true};
  REQUIRE(rig.pipeline->Refresh(refresh).status() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");  // nothing was really changed: every main is what it was
  // Now some elements are.
  for (uint64_t i = 0; i < options.sizes[0]; i += 7) {
    rig.trainer->parameters[0][2 * i + 1] ^= std::byte{0x80};
  }
  rig.reference.Refresh(0, rig.trainer->parameters[0], /*keep=*/true);
  REQUIRE(rig.pipeline->Refresh(refresh).status() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");
  CHECK(rig.reference.tensors()[0].segments[0] != stepped.tensors()[0].segments[0]);
  // A refresh that starts over keeps nothing.
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    rig.reference.Refresh(i, rig.trainer->parameters[i], /*keep=*/false);
  }
  RefreshParameters whole;
  whole.discard = true;
  REQUIRE(rig.pipeline->Refresh(whole).status() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");
}

TEST_CASE("Refresh: of the whole store starts over only with discard", "[pipeline]") {
  RigOptions options = Streaming();
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.Step(2).ok());
  CHECK(rig.pipeline->Refresh({}).status().code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(rig.Fill(/*seed=*/9) == absl::OkStatus());
  CHECK(rig.sequence() == 0);
  CHECK(rig.FilesDiffer() == "");  // the moments are zero on disk too
  REQUIRE(rig.Step(1).status() == absl::OkStatus());
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CheckFlushed(rig);
}

TEST_CASE("Refresh: discard starts over a state that is damaged", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Drain().ok());
  const uint64_t offset = rig.pipeline->store().layout()->buckets()[0].segments[0].offset;
  bench.disk.Corrupt(rig.BucketPath(0),
                     [&](std::vector<std::byte>& bytes) { bytes[offset + 100] ^= std::byte{1}; });
  REQUIRE(rig.Reopen() == absl::OkStatus());
  CHECK(rig.Step(2).status().code() == absl::StatusCode::kDataLoss);
  REQUIRE(rig.Fill(/*seed=*/3) == absl::OkStatus());
  REQUIRE(rig.Step(1).status() == absl::OkStatus());
  CheckFlushed(rig);
}

TEST_CASE("Refresh: one that fails leaves the state it found", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  rig.trainer->Break(2);
  CHECK(rig.Fill().code() == absl::StatusCode::kAborted);
  CHECK(!rig.pipeline->applied().has_value());
  rig.trainer->Mend();
  REQUIRE(rig.Fill() == absl::OkStatus());
  REQUIRE(rig.Step(1).ok());
  const Reference first = rig.reference;
  const auto history = rig.history;
  rig.trainer->Break(2);
  CHECK(rig.Fill(/*seed=*/5).code() == absl::StatusCode::kAborted);
  rig.trainer->Mend();
  rig.reference = first;
  rig.history = history;
  CHECK(rig.sequence() == 1);
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CheckFlushed(rig);
}

TEST_CASE("Materialize: writes the applied mains into the trainer's parameters", "[pipeline]") {
  RigOptions options = Streaming();
  options.types.parameter = device::DataType::kBFloat16;
  options.types.gradient = device::DataType::kBFloat16;
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  REQUIRE(rig.Step(1).ok());
  for (auto& parameter : rig.trainer->parameters) {
    parameter.assign(parameter.size(), std::byte{0x5a});
  }
  const auto untouched = rig.trainer->parameters[2];
  REQUIRE(rig.pipeline->Materialize({true, true, false}) == absl::OkStatus());
  CHECK(rig.trainer->parameters[0] == rig.reference.Parameter(0));
  CHECK(rig.trainer->parameters[2] == untouched);
  REQUIRE(rig.pipeline->Materialize({}) == absl::OkStatus());
  CHECK(rig.ParametersDiffer() == "");
  REQUIRE(rig.Step(2).ok());
  CheckFlushed(rig);
}

TEST_CASE("Rollback: goes back to a live commit, and the run from there is the same",
          "[pipeline]") {
  RigOptions options = Streaming();
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  for (uint64_t s = 1; s <= 4; ++s) {
    REQUIRE(rig.Step(s).ok());
  }
  REQUIRE(rig.pipeline->Flush(4).ok());
  const Reference fourth = rig.reference;
  CHECK(rig.pipeline->Rollback(1).status().code() == absl::StatusCode::kNotFound);
  CHECK(rig.sequence() == 4);
  const auto commit = rig.pipeline->Rollback(3);
  REQUIRE(commit.status() == absl::OkStatus());
  CHECK(commit->sequence() == 3);
  CHECK(rig.sequence() == 3);
  CHECK(rig.pipeline->applied_blob() == "blob of 3");
  rig.reference = rig.history.at(3);
  CHECK(rig.FilesDiffer() == "");
  REQUIRE(rig.Step(4).status() == absl::OkStatus());
  CHECK(rig.reference.Parameter(0) == fourth.Parameter(0));
  CheckFlushed(rig);
}

TEST_CASE("Types: any segment, parameter and gradient type gives the resident bits", "[pipeline]") {
  using device::DataType;
  RigOptions options;
  options.sizes = {700'000, 3, 300'001};
  options.host_memory_bytes = 20 * kMiB;  // four chunks of mixed types
  options.bucket_elements = 800'000;
  options.types.exp_avg = GENERATE(DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16);
  options.types.exp_avg_sq = GENERATE(DataType::kFloat32, DataType::kBFloat16);
  options.types.parameter = GENERATE(DataType::kFloat32, DataType::kBFloat16);
  options.types.gradient =
      options.types.parameter == DataType::kFloat32 ? DataType::kFloat16 : DataType::kBFloat16;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill().ok());
  for (uint64_t s = 1; s <= 3; ++s) {
    REQUIRE(rig.Step(s).status() == absl::OkStatus());
    CHECK(rig.ParametersDiffer() == "");
  }
  CheckFlushed(rig);
}

TEST_CASE("Buckets: the same tensors in one bucket and in seven give the same bits", "[pipeline]") {
  RigOptions one;
  one.sizes = {900'000, 31, 400'000};
  one.host_memory_bytes = 18 * kMiB;
  RigOptions seven = one;
  seven.bucket_elements = 190'000;
  Bench first(one);
  Bench second(seven);
  CHECK(first.rig.pipeline->store().layout()->buckets().size() == 1);
  CHECK(second.rig.pipeline->store().layout()->buckets().size() == 7);
  REQUIRE(first.rig.Fill().ok());
  REQUIRE(second.rig.Fill().ok());
  for (uint64_t s = 1; s <= 3; ++s) {
    REQUIRE(first.rig.Step(s).ok());
    REQUIRE(second.rig.Step(s).ok());
    CHECK(first.rig.trainer->parameters == second.rig.trainer->parameters);
  }
  CheckFlushed(first.rig);
  CheckFlushed(second.rig);
}

TEST_CASE("Tensors: a hundred thousand tiny ones step, with few runs a command", "[pipeline]") {
  RigOptions options;
  options.sizes.resize(100'000);
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    options.sizes[i] = i % 5;
  }
  options.trainer.max_runs = 700;
  options.trainer.slot_bytes = 256 << 10;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill() == absl::OkStatus());
  for (uint64_t s = 1; s <= 2; ++s) {
    REQUIRE(rig.Step(s).status() == absl::OkStatus());
    CHECK(rig.ParametersDiffer() == "");
  }
  CheckFlushed(rig);
}

TEST_CASE("Tensors: a store without elements steps and commits", "[pipeline]") {
  RigOptions options;
  options.sizes = {0, 0};
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Fill() == absl::OkStatus());
  REQUIRE(rig.Step(1).status() == absl::OkStatus());
  REQUIRE(rig.pipeline->Flush(1).ok());
  CHECK(rig.pipeline->applied_t() == std::vector<uint64_t>{1, 1});
}

TEST_CASE("Node: two stores step side by side, and share what the pool has", "[pipeline]") {
  RigOptions options = Streaming();
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 24, 40) * kMiB;
  RigOptions other = options;
  other.job = "other";
  other.sizes = {900'000, 100};
  Bench bench(options);
  REQUIRE(bench.rig.Fill().ok());
  REQUIRE(bench.rig.Step(1).ok());
  Rig second(bench.machine, other);
  REQUIRE(second.Open() == absl::OkStatus());
  REQUIRE(second.Fill() == absl::OkStatus());
  auto run = [](Rig& rig, uint64_t first) {
    absl::Status status;
    for (uint64_t s = first; s <= 5 && status.ok(); ++s) {
      status = rig.Step(s).status();
    }
    return status;
  };
  absl::Status first_status;
  std::thread thread([&] { first_status = run(bench.rig, 2); });
  const absl::Status second_status = run(second, 1);
  thread.join();
  REQUIRE(first_status == absl::OkStatus());
  REQUIRE(second_status == absl::OkStatus());
  CheckFlushed(bench.rig);
  CheckFlushed(second);
  const auto pool = bench.machine.node->PoolStatus();
  CHECK(pool.allocated_bytes() <= options.host_memory_bytes);
  RigOptions third = options;
  third.job = "third";
  Rig refused(bench.machine, third);
  if (options.host_memory_bytes == 24 * kMiB) {
    CHECK(refused.Open().code() == absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace moment::pipeline
