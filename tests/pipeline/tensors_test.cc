// The state by tensor: Read, Write and Digest of a StatePipeline.
#include <xxhash.h>

#include <random>
#include <string>
#include <thread>

#include "tests/pipeline/rig.h"
#include "tests/support/catch.h"

namespace moment::pipeline {
namespace {

using Catch::Matchers::Contains;
using device::DataType;
using device::kExpAvg;
using device::kExpAvgSq;
using device::kMain;

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct Bench {
  explicit Bench(const RigOptions& options) : machine(disk, options), rig(machine, options) {
    REQUIRE(rig.Open() == absl::OkStatus());
    REQUIRE(rig.Fill() == absl::OkStatus());
  }
  io::SimulatedDisk disk;
  Machine machine;
  Rig rig;
};

// Tensors that span chunks and buckets, tiny and empty ones; everything streams.
RigOptions Streaming() {
  RigOptions options;
  options.sizes = {1'200'000, 5, 400'000, 0, 1, 70'000};
  options.host_memory_bytes = 12 * kMiB;
  options.trainer.slot_bytes = 512 << 10;
  return options;
}

// The trainer's buffers and what is asked of them.
class Buffers {
 public:
  explicit Buffers(Rig& rig) : rig_(rig), access_(rig.options.sizes.size()) {
    for (auto& segment : rig.trainer->segments) {
      segment.assign(rig.options.sizes.size(), {});
    }
    binding_ = ++rig.trainer->binding;
  }

  void Read(size_t tensor, int segment, DataType type = DataType::kFloat32) {
    Bind(tensor, segment, type);
    rig_.trainer->segments[segment][tensor].assign(
        rig_.options.sizes[tensor] * device::SizeBytes(type), std::byte{0x5a});
  }
  // The reference takes what is written.
  void Write(size_t tensor, int segment, uint64_t seed, DataType type = DataType::kFloat32) {
    Bind(tensor, segment, type);
    auto& bytes = rig_.trainer->segments[segment][tensor];
    bytes = RandomValues(seed, rig_.options.sizes[tensor], type);
    rig_.reference.Write(tensor, segment, bytes, type);
  }
  void WriteZeros(size_t tensor, int segment) {
    access_[tensor].access[segment] = Access::kZeros;
    rig_.reference.WriteZeros(tensor, segment);
  }

  ReadParameters read() const { return {access_, binding_}; }
  WriteParameters write(std::vector<std::pair<uint32_t, uint64_t>> t = {}) const {
    for (const auto& [tensor, value] : t) {
      rig_.reference.SetT(tensor, value);
    }
    return {access_, binding_, std::move(t)};
  }
  // The first buffer that does not hold what the reference says; empty if none.
  std::string Differ() const {
    for (size_t i = 0; i < access_.size(); ++i) {
      for (int s = 0; s < store::kSegmentCount; ++s) {
        if (access_[i].access[s] == Access::kBuffer &&
            rig_.trainer->segments[s][i] != rig_.reference.Read(i, s, access_[i].types[s])) {
          return std::string(store::SegmentName(s)) + " of tensor " + std::to_string(i);
        }
      }
    }
    return "";
  }

 private:
  void Bind(size_t tensor, int segment, DataType type) {
    access_[tensor].access[segment] = Access::kBuffer;
    access_[tensor].types[segment] = type;
  }

  Rig& rig_;
  std::vector<TensorAccess> access_;
  uint64_t binding_ = 0;
};

void CheckFlushed(Rig& rig) {
  REQUIRE(rig.pipeline->Flush(rig.sequence()).status() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");
}

TEST_CASE("Read: any segment of any tensor, converted to the type of its buffer", "[pipeline]") {
  RigOptions options = Streaming();
  options.types.exp_avg = GENERATE(DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16);
  options.types.exp_avg_sq = GENERATE(DataType::kFloat32, DataType::kBFloat16);
  options.bucket_elements = GENERATE(as<uint64_t>{}, 300'000, store::kMaxBucketElements);
  options.host_memory_bytes = 20 * kMiB;
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  Bench bench(options);
  Rig& rig = bench.rig;
  for (const uint64_t steps : {uint64_t{0}, uint64_t{1}, uint64_t{2}}) {
    if (steps > 0) {
      REQUIRE(rig.Step(steps).status() == absl::OkStatus());
    }
    for (const DataType type : {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16}) {
      Buffers buffers(rig);
      for (size_t i = 0; i < options.sizes.size(); ++i) {
        buffers.Read(i, static_cast<int>(i + steps) % 3, type);
        buffers.Read(i, static_cast<int>(i + steps + 1) % 3, DataType::kFloat32);
      }
      INFO("after " << steps << " steps, type " << static_cast<int>(type));
      REQUIRE(rig.pipeline->Read(buffers.read()) == absl::OkStatus());
      CHECK(buffers.Differ() == "");
    }
  }
  CheckFlushed(rig);
}

TEST_CASE("Read: of the applied state, before its commit, and nothing changes", "[pipeline]") {
  RigOptions options = Streaming();
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  for (uint64_t s = 1; s <= 3; ++s) {
    REQUIRE(rig.Step(s).status() == absl::OkStatus());
    Buffers buffers(rig);
    buffers.Read(0, kExpAvg);
    buffers.Read(2, kMain);
    const auto before = rig.pipeline->store().live();
    REQUIRE(rig.pipeline->Read(buffers.read()) == absl::OkStatus());
    CHECK(buffers.Differ() == "");
    if (options.commit_every == 0) {
      CHECK(rig.pipeline->store().live().front().id() == before.front().id());
    }
    CHECK(rig.sequence() == s);
    CHECK(rig.ParametersDiffer() == "");
  }
  CheckFlushed(rig);
}

TEST_CASE("Read: moments that are still zero are not read from the files", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.pipeline->Drain().ok());
  const auto& geometry = rig.pipeline->store().layout()->buckets()[0];
  bench.disk.Corrupt(rig.BucketPath(0), [&](std::vector<std::byte>& bytes) {
    bytes[geometry.segments[kExpAvg].offset + 100] ^= std::byte{1};
  });
  Buffers buffers(rig);
  buffers.Read(0, kExpAvg);
  buffers.Read(0, kExpAvgSq, DataType::kBFloat16);
  REQUIRE(rig.pipeline->Read(buffers.read()) == absl::OkStatus());
  CHECK(buffers.Differ() == "");
}

TEST_CASE("Read: a flipped bit is DATA_LOSS naming file, segment and offset", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Flush(1).ok());
  const auto& geometry = rig.pipeline->store().layout()->buckets()[0];
  const uint64_t offset = geometry.segments[kExpAvg].offset + 4 * kMiB + 777;
  bench.disk.Corrupt(rig.BucketPath(0),
                     [&](std::vector<std::byte>& bytes) { bytes[offset] ^= std::byte{1}; });
  REQUIRE(rig.Reopen() == absl::OkStatus());
  Buffers buffers(rig);
  buffers.Read(0, kExpAvg);
  const absl::Status status = rig.pipeline->Read(buffers.read());
  CHECK(status.code() == absl::StatusCode::kDataLoss);
  CHECK_THAT(std::string(status.message()), Contains(rig.BucketPath(0)) && Contains("exp_avg") &&
                                                Contains(std::to_string(offset - 777)));
}

// A bit of this segment flips in the middle of the first bucket's file.
void Damage(Bench& bench, int segment) {
  const auto& geometry = bench.rig.pipeline->store().layout()->buckets()[0].segments[segment];
  bench.disk.Corrupt(bench.rig.BucketPath(0), [&](std::vector<std::byte>& bytes) {
    bytes[geometry.offset + geometry.length_bytes / 2] ^= std::byte{1};
  });
}

TEST_CASE("Read: a tensor costs the checksum units it lies in, and keeps what was read ahead",
          "[pipeline]") {
  RigOptions options = Streaming();
  options.sizes = {3'000'000, 1000};  // twelve chunks; the small tensor lies in the last
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.Reopen() == absl::OkStatus());
  REQUIRE(rig.pipeline->Drain().ok());  // nothing more is read ahead
  const uint64_t before = bench.machine.node->BytesRead("/state");
  constexpr uint64_t kReads = 20;
  for (uint64_t i = 0; i < kReads; ++i) {
    Buffers buffers(rig);
    buffers.Read(1, kExpAvg);
    REQUIRE(rig.pipeline->Read(buffers.read()) == absl::OkStatus());
    CHECK(buffers.Differ() == "");
  }
  const uint64_t read = bench.machine.node->BytesRead("/state") - before;
  CHECK(read > 0);
  CHECK(read <= kReads * kMiB);
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CHECK(rig.ParametersDiffer() == "");
  CheckFlushed(rig);
}

TEST_CASE("Read: segments that nobody asks for are neither read nor verified", "[pipeline]") {
  RigOptions options = Streaming();
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Drain().ok());
  Damage(bench, kExpAvg);
  REQUIRE(rig.Reopen() == absl::OkStatus());
  Buffers good(rig);
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    good.Read(i, kMain);
    good.Read(i, kExpAvgSq, DataType::kBFloat16);
  }
  REQUIRE(rig.pipeline->Read(good.read()) == absl::OkStatus());
  CHECK(good.Differ() == "");
  Buffers bad(rig);
  bad.Read(0, kExpAvg);
  CHECK(rig.pipeline->Read(bad.read()).code() == absl::StatusCode::kDataLoss);
  Buffers again(rig);
  again.Read(0, kExpAvgSq);
  REQUIRE(rig.pipeline->Read(again.read()) == absl::OkStatus());
  CHECK(again.Differ() == "");
  CHECK(rig.Step(2).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("Read: one that fails leaves no half-read chunk for the next step", "[pipeline]") {
  RigOptions options = Streaming();
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  for (uint64_t s = 1; s <= 4; ++s) {
    REQUIRE(rig.Step(s).status() == absl::OkStatus());
    REQUIRE(rig.pipeline->Drain().ok());
    REQUIRE(rig.Reopen() == absl::OkStatus());
    Buffers buffers(rig);
    for (const size_t tensor : {size_t{0}, size_t{1}, size_t{2}, size_t{5}}) {
      buffers.Read(tensor, kMain);
    }
    rig.trainer->Break(s - 1);
    CHECK(rig.pipeline->Read(buffers.read()).code() == absl::StatusCode::kAborted);
    rig.trainer->Mend();
  }
  CHECK(rig.ParametersDiffer() == "");
  CheckFlushed(rig);
}

TEST_CASE("Read: buffers of an earlier call are not touched", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  Buffers first(rig);
  first.Read(0, kMain);
  const ReadParameters given_up = first.read();
  Buffers second(rig);
  second.Read(0, kMain);
  const auto untouched = rig.trainer->segments[kMain][0];
  CHECK(rig.pipeline->Read(given_up).code() == absl::StatusCode::kInvalidArgument);
  CHECK(rig.trainer->segments[kMain][0] == untouched);
  REQUIRE(rig.pipeline->Read(second.read()) == absl::OkStatus());
  CHECK(second.Differ() == "");
}

TEST_CASE("Write: many tensors in one commit, the rest is copied along", "[pipeline]") {
  RigOptions options = Streaming();
  options.types.exp_avg = GENERATE(DataType::kFloat32, DataType::kBFloat16);
  options.types.exp_avg_sq = GENERATE(DataType::kFloat32, DataType::kBFloat16);
  options.bucket_elements = GENERATE(as<uint64_t>{}, 300'000, store::kMaxBucketElements);
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 20, 100) * kMiB;
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  const uint64_t steps = GENERATE(as<uint64_t>{}, 0, 2);
  Bench bench(options);
  Rig& rig = bench.rig;
  for (uint64_t s = 1; s <= steps; ++s) {
    REQUIRE(rig.Step(s).ok());
  }
  const uint64_t id = rig.pipeline->store().live().front().id();
  Buffers buffers(rig);
  buffers.Write(0, kExpAvg, 11);
  buffers.Write(1, kMain, 12);
  buffers.Write(2, kExpAvgSq, 13, DataType::kFloat16);
  buffers.Write(2, kMain, 14, DataType::kBFloat16);
  buffers.Write(3, kMain, 15);
  buffers.WriteZeros(4, kExpAvg);
  const auto commit = rig.pipeline->Write(buffers.write({{0, 7}, {3, 9}}));
  REQUIRE(commit.status() == absl::OkStatus());
  CHECK(commit->sequence() == steps);
  CHECK(commit->due() == (steps == 0 || options.commit_every == 1));
  CHECK(commit->id() > id);
  CHECK(rig.FilesDiffer() == "");
  CHECK(rig.pipeline->applied_t()[0] == 7);
  // Steps go on from what was written, and a new opening finds it.
  rig.reference.Materialize(1);
  rig.reference.Materialize(2);
  REQUIRE(rig.pipeline->Materialize({}) == absl::OkStatus());
  CHECK(rig.ParametersDiffer() == "");
  REQUIRE(rig.Step(steps + 1).status() == absl::OkStatus());
  CheckFlushed(rig);
  REQUIRE(rig.Reopen() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");
}

TEST_CASE("Write: a store that is overwritten as a whole is not read", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Drain().ok());
  REQUIRE(rig.Reopen() == absl::OkStatus());
  const uint64_t offset = rig.pipeline->store().layout()->buckets()[0].segments[kMain].offset;
  bench.disk.Corrupt(rig.BucketPath(0),
                     [&](std::vector<std::byte>& bytes) { bytes[offset + 5] ^= std::byte{1}; });
  REQUIRE(rig.Reopen() == absl::OkStatus());
  Buffers buffers(rig);
  std::vector<std::pair<uint32_t, uint64_t>> t;
  for (uint32_t i = 0; i < rig.options.sizes.size(); ++i) {
    buffers.Write(i, kMain, 100 + i);
    buffers.Write(i, kExpAvg, 200 + i);
    buffers.WriteZeros(i, kExpAvgSq);
    t.emplace_back(i, 40 + i);
  }
  REQUIRE(rig.pipeline->Write(buffers.write(t)).status() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");
  CHECK(rig.pipeline->applied_t()[5] == 45);
}

TEST_CASE("Write: moments that are all zeroed need not be read again", "[pipeline]") {
  RigOptions options = Streaming();
  options.bucket_elements = 900'000;
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  Bench bench(options);
  Rig& rig = bench.rig;
  for (uint64_t s = 1; s <= 4; ++s) {
    REQUIRE(rig.Step(s).ok());
  }
  // All of the first bucket, a part of the second.
  Buffers buffers(rig);
  for (const int segment : {kExpAvg, kExpAvgSq}) {
    buffers.WriteZeros(0, segment);
    buffers.WriteZeros(1, segment);
  }
  REQUIRE(rig.pipeline->Write(buffers.write({{0, 0}, {1, 0}})).status() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");  // on disk they are zero, too
  const auto images = rig.pipeline->store().newest()->images;
  CHECK(images[0]->moments_zero());
  CHECK_FALSE(images[1]->moments_zero());
  REQUIRE(rig.Step(5).status() == absl::OkStatus());
  CHECK(rig.ParametersDiffer() == "");
  // Zeroed again, they count as zero until somebody gives one of them.
  Buffers more(rig);
  for (const int segment : {kExpAvg, kExpAvgSq}) {
    more.WriteZeros(0, segment);
    more.WriteZeros(1, segment);
  }
  REQUIRE(rig.pipeline->Write(more.write()).status() == absl::OkStatus());
  CHECK(rig.pipeline->store().newest()->images[0]->moments_zero());
  Buffers main(rig);
  main.Write(0, kMain, 31);
  REQUIRE(rig.pipeline->Write(main.write()).status() == absl::OkStatus());
  CHECK(rig.pipeline->store().newest()->images[0]->moments_zero());
  CHECK(rig.FilesDiffer() == "");
  Buffers moment(rig);
  moment.Write(0, kExpAvgSq, 32);
  REQUIRE(rig.pipeline->Write(moment.write()).status() == absl::OkStatus());
  CHECK_FALSE(rig.pipeline->store().newest()->images[0]->moments_zero());
  CHECK(rig.FilesDiffer() == "");
  rig.reference.Materialize(0);
  REQUIRE(rig.pipeline->Materialize({}) == absl::OkStatus());
  REQUIRE(rig.Step(6).status() == absl::OkStatus());
  CheckFlushed(rig);
}

TEST_CASE("Write: moments that are all zeroed are neither read nor verified", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Drain().ok());
  Damage(bench, kExpAvg);
  Damage(bench, kExpAvgSq);
  REQUIRE(rig.Reopen() == absl::OkStatus());
  Buffers buffers(rig);
  for (size_t i = 0; i < rig.options.sizes.size(); ++i) {
    buffers.WriteZeros(i, kExpAvg);
    buffers.WriteZeros(i, kExpAvgSq);
  }
  REQUIRE(rig.pipeline->Write(buffers.write()).status() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CheckFlushed(rig);
}

TEST_CASE("Write: what it keeps of a chunk is read and verified", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Drain().ok());
  const Reference stepped = rig.reference;
  Damage(bench, kExpAvgSq);
  REQUIRE(rig.Reopen() == absl::OkStatus());
  Buffers buffers(rig);
  for (size_t i = 0; i < rig.options.sizes.size(); ++i) {
    buffers.Write(i, kMain, 70 + i);
    buffers.Write(i, kExpAvg, 80 + i);
  }
  CHECK(rig.pipeline->Write(buffers.write()).status().code() == absl::StatusCode::kDataLoss);
  Damage(bench, kExpAvgSq);  // and back
  rig.reference = stepped;
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CheckFlushed(rig);
}

TEST_CASE("Materialize: moments of chunks that do not stay are not read for it", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Drain().ok());
  Damage(bench, kExpAvg);
  REQUIRE(rig.Reopen() == absl::OkStatus());
  rig.trainer->parameters[0].assign(rig.trainer->parameters[0].size(), std::byte{0x5a});
  REQUIRE(rig.pipeline->Materialize({}) == absl::OkStatus());
  CHECK(rig.ParametersDiffer() == "");
  CHECK(rig.Step(2).status().code() == absl::StatusCode::kDataLoss);
}

TEST_CASE("Write: t alone names the old files again", "[pipeline]") {
  RigOptions options = Streaming();
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  REQUIRE(rig.pipeline->Flush(1).ok());
  const uint32_t file = rig.pipeline->store().newest()->images[0]->file_number();
  Buffers buffers(rig);
  REQUIRE(rig.pipeline->Write(buffers.write({{2, 1000}})).status() == absl::OkStatus());
  CHECK(rig.pipeline->store().newest()->images[0]->file_number() == file);
  CHECK(rig.FilesDiffer() == "");
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CheckFlushed(rig);
  CHECK(rig.pipeline->applied_t()[2] == 1001);
}

TEST_CASE("Write: one that fails at any command leaves the state it found", "[pipeline]") {
  RigOptions options = Streaming();
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 12, 100) * kMiB;
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  const Reference stepped = rig.reference;
  auto write = [&rig] {
    Buffers buffers(rig);
    for (uint32_t i = 0; i < rig.options.sizes.size(); ++i) {
      buffers.Write(i, kMain, 500 + i);
      buffers.Write(i, kExpAvg, 600 + i);
    }
    return rig.pipeline->Write(buffers.write({{0, 77}})).status();
  };
  const uint64_t before = rig.trainer->commands();
  REQUIRE(write() == absl::OkStatus());
  const uint64_t commands = rig.trainer->commands() - before;
  REQUIRE(commands > 4);
  const Reference written = rig.reference;
  REQUIRE(rig.Fill(1) == absl::OkStatus());
  REQUIRE(rig.Step(1).ok());
  for (uint64_t at = 0; at < commands; at += 1 + commands / 5) {
    INFO("gone at command " << at << " of " << commands);
    rig.trainer->Break(at);
    CHECK(write().code() == absl::StatusCode::kAborted);
    rig.trainer->Mend();
    rig.reference = stepped;
    CHECK(rig.pipeline->applied_t()[0] == 1);
    Buffers all(rig);
    all.Read(0, kMain);
    all.Read(2, kExpAvg);
    REQUIRE(rig.pipeline->Read(all.read()) == absl::OkStatus());
    CHECK(all.Differ() == "");
  }
  CheckFlushed(rig);
  REQUIRE(write() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");
}

TEST_CASE("Write: Abort ends it and leaves the state it found", "[pipeline]") {
  Bench bench(Streaming());
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  const Reference stepped = rig.reference;
  Buffers buffers(rig);
  buffers.Write(0, kMain, 3);
  rig.trainer->Hold();
  absl::Status status;
  std::thread write([&] { status = rig.pipeline->Write(buffers.write()).status(); });
  while (rig.pipeline->Status().activity != "write") {
    std::this_thread::yield();
  }
  rig.pipeline->Abort(absl::CancelledError("the session ended"));
  rig.trainer->Break();
  write.join();
  CHECK(status == absl::CancelledError("the session ended"));
  rig.trainer->Mend();
  rig.reference = stepped;
  REQUIRE(rig.Step(2).status() == absl::OkStatus());
  CheckFlushed(rig);
}

TEST_CASE("Write: is refused without a state, and buffers without the trainer's memory",
          "[pipeline]") {
  RigOptions options = Streaming();
  io::SimulatedDisk disk;
  Machine machine(disk, options);
  Rig rig(machine, options);
  REQUIRE(rig.Open() == absl::OkStatus());
  Buffers buffers(rig);
  buffers.Write(0, kMain, 1);
  const auto refused = absl::StatusCode::kFailedPrecondition;
  CHECK(rig.pipeline->Write(buffers.write()).status().code() == refused);
  CHECK(rig.pipeline->Read(buffers.read()).code() == refused);
  CHECK(rig.pipeline->Digest(std::vector<bool>(6, true)).status().code() == refused);
  REQUIRE(rig.Fill() == absl::OkStatus());
  rig.pipeline->Detach();
  CHECK(rig.pipeline->Write(buffers.write()).status().code() == refused);
  CHECK(rig.pipeline->Read(buffers.read()).code() == refused);
  // What moves nothing needs none.
  Buffers zeros(rig);
  zeros.WriteZeros(0, kExpAvg);
  CHECK(rig.pipeline->Write(zeros.write()).status() == absl::OkStatus());
  CHECK(rig.pipeline->Digest(std::vector<bool>(6, true)).status() == absl::OkStatus());
}

uint64_t HashOf(const std::vector<std::byte>& bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

// The first digest that is not that of the reference's bytes; empty if none.
std::string DigestsDiffer(Rig& rig, const std::vector<bool>& tensors) {
  const auto digests = rig.pipeline->Digest(tensors);
  REQUIRE(digests.status() == absl::OkStatus());
  size_t next = 0;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i]) {
      continue;
    }
    if (next == digests->size() || (*digests)[next].tensor != i) {
      return "no digest of tensor " + std::to_string(i);
    }
    for (int s = 0; s < store::kSegmentCount; ++s) {
      if ((*digests)[next].segments[s] != HashOf(rig.reference.tensors()[i].segments[s])) {
        return std::string(store::SegmentName(s)) + " of tensor " + std::to_string(i);
      }
    }
    ++next;
  }
  return next == digests->size() ? "" : "too many";
}

TEST_CASE("Digest: of the bytes of each tensor, whatever buckets and chunks are", "[pipeline]") {
  RigOptions options = Streaming();
  options.types.exp_avg = GENERATE(DataType::kFloat32, DataType::kFloat16);
  options.bucket_elements = GENERATE(as<uint64_t>{}, 300'000, store::kMaxBucketElements);
  options.chunk_bytes = GENERATE(as<uint64_t>{}, 3, 6) * kMiB;
  options.host_memory_bytes = 24 * kMiB;
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 0);
  Bench bench(options);
  Rig& rig = bench.rig;
  const std::vector<bool> all(options.sizes.size(), true);
  CHECK(DigestsDiffer(rig, all) == "");  // the moments are still zero
  for (uint64_t s = 1; s <= 2; ++s) {
    REQUIRE(rig.Step(s).ok());
    CHECK(DigestsDiffer(rig, all) == "");
    CHECK(DigestsDiffer(rig, {false, true, true, true, false, false}) == "");
    CHECK(DigestsDiffer(rig, std::vector<bool>(options.sizes.size())) == "");
  }
  CheckFlushed(rig);
  const uint64_t id = rig.pipeline->store().live().front().id();
  CHECK(DigestsDiffer(rig, all) == "");
  CHECK(rig.pipeline->store().live().front().id() == id);
}

// Calls in a random order, each held against the reference.
class Walk {
 public:
  Walk(Rig& rig, uint64_t seed) : rig_(rig), random_(seed) {}

  void Take(int steps) {
    for (int i = 0; i < steps; ++i) {
      INFO("call " << i);
      One();
    }
    CheckFlushed(rig_);
  }

 private:
  uint64_t Draw(uint64_t below) { return random_() % below; }
  size_t tensors() const { return rig_.options.sizes.size(); }

  void One() {
    switch (Draw(9)) {
      case 0:
      case 1:
        Step();
        return;
      case 2:
        Read(/*breaks=*/false);
        return;
      case 3:
        Read(/*breaks=*/Draw(2) == 0);
        return;
      case 4:
        Write(/*breaks=*/Draw(3) == 0);
        return;
      case 5:
        CHECK(DigestsDiffer(rig_, Some()) == "");
        return;
      case 6:
        Refresh();
        return;
      case 7:
        Materialize();
        return;
      default:
        Draw(2) == 0 ? CheckFlushed(rig_) : Reopen();
        return;
    }
  }

  std::vector<bool> Some() {
    std::vector<bool> some(tensors());
    for (size_t i = 0; i < some.size(); ++i) {
      some[i] = Draw(3) == 0;
    }
    return some;
  }

  void Step() {
    rig_.sits_out.clear();
    for (size_t i = 0; i < tensors(); ++i) {
      if (Draw(5) == 0) {
        rig_.sits_out.push_back(i);
      }
    }
    REQUIRE(rig_.Step(rig_.sequence() + 1).status() == absl::OkStatus());
  }

  void Read(bool breaks) {
    Buffers buffers(rig_);
    for (size_t i = 0; i < tensors(); ++i) {
      for (int s = 0; s < store::kSegmentCount; ++s) {
        if (Draw(4) == 0) {
          buffers.Read(i, s, kTypes[Draw(3)]);
        }
      }
    }
    if (breaks) {
      rig_.trainer->Break(Draw(4));
      rig_.pipeline->Read(buffers.read()).IgnoreError();
      rig_.trainer->Mend();
      return;
    }
    REQUIRE(rig_.pipeline->Read(buffers.read()) == absl::OkStatus());
    CHECK(buffers.Differ() == "");
  }

  void Write(bool breaks) {
    const Reference before = rig_.reference;
    Buffers buffers(rig_);
    std::vector<std::pair<uint32_t, uint64_t>> t;
    for (uint32_t i = 0; i < tensors(); ++i) {
      for (int s = 0; s < store::kSegmentCount; ++s) {
        const uint64_t what = Draw(6);
        if (what < 2) {
          // The root of a negative second moment is a NaN, of which the bits are not defined.
          s == kExpAvgSq ? buffers.WriteZeros(i, s)
                         : buffers.Write(i, s, Draw(1000), kTypes[Draw(3)]);
        } else if (what == 2) {
          buffers.WriteZeros(i, s);
        }
      }
      if (Draw(3) == 0) {
        t.emplace_back(i, Draw(100));
      }
    }
    const WriteParameters write = buffers.write(t);
    if (breaks) {
      rig_.trainer->Break(Draw(4));
    }
    const absl::Status status = rig_.pipeline->Write(write).status();
    rig_.trainer->Mend();
    if (!status.ok()) {
      REQUIRE(breaks);
      rig_.reference = before;
    }
    rig_.history.insert_or_assign(rig_.sequence(), rig_.reference);
  }

  void Refresh() {
    RefreshParameters refresh;
    refresh.tensors = Some();
    for (size_t i = 0; i < tensors(); ++i) {
      if (refresh.tensors[i]) {
        rig_.reference.Refresh(i, rig_.trainer->parameters[i], /*keep=*/true);
      }
    }
    REQUIRE(rig_.pipeline->Refresh(refresh).status() == absl::OkStatus());
    rig_.history.insert_or_assign(rig_.sequence(), rig_.reference);
  }

  void Materialize() {
    const std::vector<bool> some = Some();
    REQUIRE(rig_.pipeline->Materialize(some) == absl::OkStatus());
    for (size_t i = 0; i < tensors(); ++i) {
      if (some[i]) {
        rig_.reference.Materialize(i);
        CHECK(rig_.trainer->parameters[i] == rig_.reference.Parameter(i));
      }
    }
  }

  void Reopen() {
    const Reference at = rig_.reference;
    REQUIRE(rig_.pipeline->Drain() == absl::OkStatus());
    REQUIRE(rig_.Reopen() == absl::OkStatus());
    rig_.reference = at;
  }

  static constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16,
                                        DataType::kFloat16};

  Rig& rig_;
  std::mt19937_64 random_;
};

TEST_CASE("Tensors: any order of calls keeps to the reference", "[pipeline]") {
  RigOptions options = Streaming();
  options.types.parameter = GENERATE(DataType::kFloat32, DataType::kBFloat16);
  options.types.exp_avg = options.types.parameter;
  options.bucket_elements = GENERATE(as<uint64_t>{}, 500'000, store::kMaxBucketElements);
  options.host_memory_bytes = GENERATE(as<uint64_t>{}, 20, 28, 100) * kMiB;
  options.commit_every = GENERATE(as<uint64_t>{}, 1, 3);
  const uint64_t seed = std::random_device()();
  INFO("seed " << seed << ", parameters " << static_cast<int>(options.types.parameter)
               << ", buckets of " << options.bucket_elements << ", memory "
               << options.host_memory_bytes << ", commit_every " << options.commit_every);
  Bench bench(options);
  Walk(bench.rig, seed).Take(25);
}

TEST_CASE("Tensors: a hundred thousand tiny ones are read, written and digested in one call",
          "[pipeline]") {
  RigOptions options;
  options.sizes.resize(100'000);
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    options.sizes[i] = i % 5;
  }
  options.trainer.max_runs = 700;
  options.trainer.slot_bytes = 256 << 10;
  Bench bench(options);
  Rig& rig = bench.rig;
  REQUIRE(rig.Step(1).ok());
  Buffers buffers(rig);
  std::vector<std::pair<uint32_t, uint64_t>> t;
  for (uint32_t i = 0; i < options.sizes.size(); ++i) {
    for (int s = 0; s < store::kSegmentCount; ++s) {
      buffers.Write(i, s, 3 * i + static_cast<uint64_t>(s), DataType::kBFloat16);
    }
    t.emplace_back(i, i);
  }
  REQUIRE(rig.pipeline->Write(buffers.write(t)).status() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");
  Buffers back(rig);
  for (uint32_t i = 0; i < options.sizes.size(); ++i) {
    for (int s = 0; s < store::kSegmentCount; ++s) {
      back.Read(i, s);
    }
  }
  REQUIRE(rig.pipeline->Read(back.read()) == absl::OkStatus());
  CHECK(back.Differ() == "");
  CHECK(DigestsDiffer(rig, std::vector<bool>(options.sizes.size(), true)) == "");
}

}  // namespace
}  // namespace moment::pipeline
