// The state by tensor: Read, Write and Digest of a StatePipeline.
#include <xxhash.h>

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
