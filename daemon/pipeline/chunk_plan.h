#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/store/layout.h"

namespace moment::pipeline {

using store::kSegmentCount;

// Consecutive elements of one tensor within a chunk.
struct ChunkRun {
  uint32_t tensor = 0;        // store index
  uint64_t tensor_first = 0;  // element within the tensor
  uint64_t chunk_first = 0;   // element within the chunk
  uint64_t count = 0;
};

// Where one segment of a chunk lies: in the bucket's file, in a frame, in the checksum table.
struct SegmentExtent {
  uint64_t file_offset = 0;
  uint64_t frame_offset = 0;
  uint64_t length_bytes = 0;    // padded to 4096
  uint64_t data_bytes = 0;      // without the pad
  uint64_t first_checksum = 0;  // index into the bucket's table
  uint64_t units = 0;
};

// A run of elements of a bucket: the unit of transfer and compute.
struct Chunk {
  uint32_t bucket = 0;
  uint64_t elements = 0;  // without pads
  SegmentExtent segments[kSegmentCount];
  uint64_t first_run = 0;
  uint64_t run_count = 0;

  uint64_t bytes() const;
  uint64_t units() const;
};

// Checksum units of one segment of a chunk.
struct UnitRange {
  uint64_t first = 0;
  uint64_t count = 0;
};

// What of a chunk is read or written, in whole units of each segment.
struct ChunkExtent {
  UnitRange units[kSegmentCount];

  uint64_t bytes(const Chunk& chunk) const;
};
ChunkExtent WholeExtent(const Chunk& chunk);

struct BucketChunks {
  uint32_t first = 0;
  uint32_t count = 0;
  device::DataType types[kSegmentCount] = {};
};

// How the buckets of a layout are cut into chunks: at most `chunk_bytes` over all segments, rounded
// down to whole checksum units of every segment (one unit of each at least). Pure and immutable.
class ChunkPlan {
 public:
  ChunkPlan(const store::Layout& layout, uint64_t chunk_bytes);

  const std::vector<Chunk>& chunks() const { return chunks_; }
  const std::vector<BucketChunks>& buckets() const { return buckets_; }
  std::span<const ChunkRun> runs(const Chunk& chunk) const {
    return std::span(runs_).subspan(chunk.first_run, chunk.run_count);
  }
  const device::DataType* types(const Chunk& chunk) const { return buckets_[chunk.bucket].types; }

  // What one frame must hold: the largest chunk.
  uint64_t frame_bytes() const { return frame_bytes_; }
  uint64_t max_units() const { return max_units_; }
  uint64_t state_bytes() const { return state_bytes_; }

 private:
  void AddBucket(const store::BucketGeometry& geometry, uint64_t chunk_bytes);
  void AddRuns(const v1::Bucket& bucket, const BucketChunks& chunks, uint64_t elements_each);

  std::vector<Chunk> chunks_;
  std::vector<ChunkRun> runs_;
  std::vector<BucketChunks> buckets_;
  uint64_t frame_bytes_ = 0;
  uint64_t max_units_ = 0;
  uint64_t state_bytes_ = 0;
};

device::DataType ToDeviceType(v1::DataType type);

}  // namespace moment::pipeline
