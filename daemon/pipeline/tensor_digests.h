#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "daemon/pipeline/chunk_plan.h"

namespace moment::pipeline {

// XXH3-64 of one tensor's segments, as they are stored and without pads.
struct TensorDigest {
  uint32_t tensor = 0;
  uint64_t segments[kSegmentCount] = {};
};

// The digests of chosen tensors, from chunks in the order of the plan: the same for any size of
// buckets and chunks. Memory is bounded: a tensor keeps a state only while it reaches beyond the
// chunks seen so far. Not thread-safe.
class TensorDigests {
 public:
  // `tensors` by tensor of the plan; `elements` their sizes.
  TensorDigests(const ChunkPlan& plan, std::vector<uint8_t> tensors,
                std::vector<uint64_t> elements);
  ~TensorDigests();

  // The chunk's bytes, segments at their frame offsets; `moments_zero`: those of the moments are
  // zeros, whatever is there.
  void Add(const Chunk& chunk, const std::byte* data, bool moments_zero);
  // By tensor, after the last chunk.
  std::vector<TensorDigest> Take();

 private:
  struct Running;  // hashes of a tensor that is not complete

  void AddRun(const Chunk& chunk, const ChunkRun& run, const std::byte* data, bool moments_zero);

  const ChunkPlan& plan_;
  const std::vector<uint8_t> tensors_;
  const std::vector<uint64_t> elements_;
  absl::flat_hash_map<uint32_t, std::unique_ptr<Running>> running_;
  std::vector<TensorDigest> digests_;
};

}  // namespace moment::pipeline
