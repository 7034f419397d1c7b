#include "daemon/pipeline/chunk_plan.h"

#include <algorithm>
#include <numeric>

#include "daemon/base/memory.h"

namespace moment::pipeline {
namespace {

// Elements of the smallest chunk: whole checksum units of every segment.
uint64_t UnitElements(const store::BucketGeometry& geometry) {
  uint64_t elements = 1;
  for (const store::SegmentGeometry& segment : geometry.segments) {
    elements = std::lcm(elements, store::kChecksumUnitBytes / store::SizeBytes(segment.type));
  }
  return elements;
}

uint64_t ElementsEach(const store::BucketGeometry& geometry, uint64_t chunk_bytes) {
  uint64_t element_bytes = 0;
  for (const store::SegmentGeometry& segment : geometry.segments) {
    element_bytes += store::SizeBytes(segment.type);
  }
  const uint64_t unit = UnitElements(geometry);
  return std::max(unit, base::RoundDown(chunk_bytes / element_bytes, unit));
}

SegmentExtent Extent(const store::SegmentGeometry& segment, uint64_t first, uint64_t elements,
                     bool last) {
  const uint64_t size = store::SizeBytes(segment.type);
  SegmentExtent extent;
  extent.file_offset = segment.offset + first * size;
  extent.data_bytes = elements * size;
  extent.length_bytes = last ? segment.length_bytes - first * size : extent.data_bytes;
  extent.first_checksum = segment.first_checksum + first * size / store::kChecksumUnitBytes;
  extent.units = (extent.length_bytes + store::kChecksumUnitBytes - 1) / store::kChecksumUnitBytes;
  return extent;
}

}  // namespace

device::DataType ToDeviceType(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_BFLOAT16:
      return device::DataType::kBFloat16;
    case v1::DATA_TYPE_FLOAT16:
      return device::DataType::kFloat16;
    default:
      return device::DataType::kFloat32;
  }
}

uint64_t Chunk::bytes() const {
  uint64_t bytes = 0;
  for (const SegmentExtent& segment : segments) {
    bytes += segment.length_bytes;
  }
  return bytes;
}

uint64_t Chunk::units() const {
  uint64_t units = 0;
  for (const SegmentExtent& segment : segments) {
    units += segment.units;
  }
  return units;
}

ChunkExtent WholeExtent(const Chunk& chunk) {
  ChunkExtent whole;
  for (int s = 0; s < kSegmentCount; ++s) {
    whole.units[s].count = chunk.segments[s].units;
  }
  return whole;
}

uint64_t ChunkExtent::bytes(const Chunk& chunk) const {
  uint64_t bytes = 0;
  for (int s = 0; s < kSegmentCount; ++s) {
    const uint64_t begin = units[s].first * store::kChecksumUnitBytes;
    const uint64_t end = (units[s].first + units[s].count) * store::kChecksumUnitBytes;
    bytes += std::min(end, chunk.segments[s].length_bytes) - begin;
  }
  return bytes;
}

ChunkPlan::ChunkPlan(const store::Layout& layout, uint64_t chunk_bytes) {
  buckets_.reserve(layout.buckets().size());
  for (size_t b = 0; b < layout.buckets().size(); ++b) {
    const store::BucketGeometry& geometry = layout.buckets()[b];
    AddBucket(geometry, chunk_bytes);
    AddRuns(layout.proto().buckets(static_cast<int>(b)), buckets_.back(),
            ElementsEach(geometry, chunk_bytes));
  }
}

void ChunkPlan::AddBucket(const store::BucketGeometry& geometry, uint64_t chunk_bytes) {
  const uint64_t each = ElementsEach(geometry, chunk_bytes);
  BucketChunks bucket;
  bucket.first = static_cast<uint32_t>(chunks_.size());
  for (int s = 0; s < kSegmentCount; ++s) {
    bucket.types[s] = ToDeviceType(geometry.segments[s].type);
  }
  for (uint64_t first = 0; first < geometry.elements; first += each) {
    Chunk chunk;
    chunk.bucket = static_cast<uint32_t>(buckets_.size());
    chunk.elements = std::min(each, geometry.elements - first);
    const bool last = first + chunk.elements == geometry.elements;
    uint64_t frame_offset = 0;
    for (int s = 0; s < kSegmentCount; ++s) {
      chunk.segments[s] = Extent(geometry.segments[s], first, chunk.elements, last);
      chunk.segments[s].frame_offset = frame_offset;
      frame_offset += chunk.segments[s].length_bytes;
    }
    frame_bytes_ = std::max(frame_bytes_, frame_offset);
    max_units_ = std::max(max_units_, chunk.units());
    state_bytes_ += frame_offset;
    chunks_.push_back(chunk);
  }
  bucket.count = static_cast<uint32_t>(chunks_.size()) - bucket.first;
  buckets_.push_back(bucket);
}

void ChunkPlan::AddRuns(const v1::Bucket& bucket, const BucketChunks& chunks,
                        uint64_t elements_each) {
  if (chunks.count == 0) {
    return;
  }
  uint32_t current = chunks.first;
  uint64_t position = 0;  // within the current chunk
  chunks_[current].first_run = runs_.size();
  for (const v1::BucketSlice& slice : bucket.slices()) {
    uint64_t done = 0;
    while (done < slice.element_count()) {
      if (position == elements_each) {
        chunks_[++current].first_run = runs_.size();
        position = 0;
      }
      ChunkRun run;
      run.tensor = slice.tensor();
      run.tensor_first = slice.element_offset() + done;
      run.chunk_first = position;
      run.count = std::min(slice.element_count() - done, elements_each - position);
      runs_.push_back(run);
      ++chunks_[current].run_count;
      done += run.count;
      position += run.count;
    }
  }
}

}  // namespace moment::pipeline
