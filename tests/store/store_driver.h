#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/io/simulated_disk.h"
#include "daemon/store/faults.h"
#include "daemon/store/store.h"

namespace moment::store {

inline constexpr char kTestStateDirectory[] = "/state";

// A state directory on a simulated disk.
Environment SimulatedEnvironment(io::SimulatedDisk& disk);

v1::Member MakeMember(const std::string& name);
v1::Tensor MakeTensor(const std::string& name, uint32_t member, std::vector<uint64_t> shape);

// Two members; three buckets of 1,500 elements and less, one tensor split over two of them.
OpenParameters SmallStore(v1::Resume resume = v1::RESUME_AUTO);

// What a commit must hold, kept outside the store.
struct ExpectedCommit {
  uint64_t id = 0;
  uint64_t sequence = 0;
  bool due = false;
  std::string blob;
  std::vector<uint64_t> seeds;       // of the content, by bucket
  std::vector<uint64_t> written_by;  // id, by bucket
  std::vector<bool> moments_zero;
  std::vector<uint64_t> t;
};

// Deterministic bytes of one segment of a bucket; zeros for moments that are zero.
std::vector<std::byte> SegmentContent(const BucketGeometry& geometry, int segment, uint64_t seed,
                                      bool moments_zero);

// A change under way, as the pipeline has it.
struct DrivenStep {
  std::unique_ptr<Mutation> mutation;
  State state;
  ExpectedCommit expected;
};

// Writes states the way the pipeline does, synchronously, one thing after the other.
class StoreDriver {
 public:
  StoreDriver(io::IoEngine& engine, Store& store) : engine_(engine), store_(store) {}

  // Whole store, moments zero, due; `sequence` is the start.
  absl::StatusOr<DrivenStep> BeginRefresh(uint64_t sequence);
  // The step behind `base`; `rewritten` empty: every bucket; all false: a skip.
  absl::StatusOr<DrivenStep> BeginStep(const DrivenStep& base, uint64_t commit_every = 1,
                                       std::vector<bool> rewritten = {});
  // The same from the newest commit, of which `expected` is known.
  absl::StatusOr<DrivenStep> BeginStepBehind(const State& base, const ExpectedCommit& expected,
                                             uint64_t sequence, bool due,
                                             std::vector<bool> rewritten = {});
  // Writes the buckets [first, last) of the change that are rewritten.
  absl::Status WriteBuckets(DrivenStep& step, size_t first, size_t last);
  absl::Status WriteAll(DrivenStep& step);
  absl::Status Commit(DrivenStep& step);
  // Refresh, then steps 1 .. count, each committed before the next begins.
  absl::StatusOr<ExpectedCommit> RefreshAndStep(uint64_t count);

 private:
  absl::Status WriteImage(BucketImage& image, const BucketGeometry& geometry, uint64_t seed);

  io::IoEngine& engine_;
  Store& store_;
};

// Empty if the file of a bucket holds what this seed writes.
std::string CompareFile(io::IoEngine& engine, io::File& file, const BucketGeometry& geometry,
                        uint64_t seed, bool moments_zero);

// Empty if the state is what was expected: fields, and every byte read from its files.
std::string CompareState(io::IoEngine& engine, const State& state, const ExpectedCommit& expected);

}  // namespace moment::store
