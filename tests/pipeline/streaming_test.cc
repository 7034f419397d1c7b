// A streamed run gives the bits of a resident one, for any bucket, chunk and pool size.
#include <string>

#include "tests/pipeline/rig.h"
#include "tests/support/catch.h"

namespace moment::pipeline {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// Fills, steps, flushes, reopens and steps again, and compares everything at every point.
void RunAndCompare(const RigOptions& options, uint64_t steps) {
  io::SimulatedFaults faults;
  faults.seed = options.bucket_elements + options.host_memory_bytes + options.commit_every;
  faults.reorder = true;
  faults.short_transfers = true;
  io::SimulatedDisk disk(faults);
  Machine machine(disk, options);
  Rig rig(machine, options);
  REQUIRE(rig.Open() == absl::OkStatus());
  REQUIRE(rig.Fill() == absl::OkStatus());
  CHECK(rig.FilesDiffer() == "");
  uint64_t sequence = 0;
  for (int life = 0; life < 2; ++life) {
    for (uint64_t i = 0; i < steps; ++i) {
      ++sequence;
      INFO("sequence " << sequence);
      const auto statistics = rig.Step(sequence);
      REQUIRE(statistics.status() == absl::OkStatus());
      CHECK(rig.ParametersDiffer() == "");
    }
    REQUIRE(rig.pipeline->Flush(sequence).status() == absl::OkStatus());
    CHECK(rig.FilesDiffer() == "");
    REQUIRE(rig.pipeline->Drain() == absl::OkStatus());
    rig.Close();
    REQUIRE(rig.Open() == absl::OkStatus());
    CHECK(rig.pipeline->applied()->sequence == sequence);
    CHECK(rig.pipeline->applied_blob() == "blob of " + std::to_string(sequence));
  }
}

TEST_CASE("Streaming: a run with everything in the pool equals the resident one", "[pipeline]") {
  RunAndCompare({}, 3);
}

TEST_CASE("Streaming: any pool size and commit interval gives the same bits", "[pipeline]") {
  const uint64_t frames = GENERATE(as<uint64_t>{}, 4, 6, 8, 12, 20);
  const uint64_t commit_every = GENERATE(as<uint64_t>{}, 1, 3, 0);
  INFO("frames " << frames << " commit_every " << commit_every);
  RigOptions options;
  options.bucket_elements = 600'000;
  options.host_memory_bytes = frames * 3 * kMiB;
  options.commit_every = commit_every;
  RunAndCompare(options, 4);
}

TEST_CASE("Streaming: any bucket and chunk size gives the same bits", "[pipeline]") {
  const uint64_t bucket_elements = GENERATE(as<uint64_t>{}, 150'000, 290'000, 2'000'000);
  const uint64_t chunk_mib = GENERATE(as<uint64_t>{}, 3, 6, 48);
  INFO("bucket " << bucket_elements << " chunk " << chunk_mib);
  RigOptions options;
  options.bucket_elements = bucket_elements;
  options.chunk_bytes = chunk_mib * kMiB;
  options.host_memory_bytes = 48 * kMiB;
  RunAndCompare(options, 2);
}

}  // namespace
}  // namespace moment::pipeline
