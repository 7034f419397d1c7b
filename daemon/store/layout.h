#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "moment/v1/disk.pb.h"

namespace moment::store {

inline constexpr int kSegmentCount = 3;  // main, exp_avg, exp_avg_sq
inline constexpr uint64_t kChecksumUnitBytes = uint64_t{1} << 20;
// 200 M, and full pages in every type of a segment: so the parts of a tensor that goes on in the
// next bucket can be mapped one behind the other.
inline constexpr uint64_t kMaxBucketElements = 200'003'584;
inline constexpr uint64_t kMaxBucketTensors = 4096;
inline constexpr uint64_t kMaxHeaderBytes = uint64_t{8} << 20;

const char* SegmentName(int segment);
uint64_t SizeBytes(v1::DataType type);  // 0 for types that are refused
uint64_t ElementCount(const v1::Tensor& tensor);
v1::DataType SegmentType(const v1::Member& member, int segment);

// Where one segment lies in a bucket's file.
struct SegmentGeometry {
  v1::DataType type = v1::DATA_TYPE_FLOAT32;
  uint64_t offset = 0;          // in the file; a multiple of 4096
  uint64_t length_bytes = 0;    // padded to 4096
  uint64_t first_checksum = 0;  // index into the bucket's checksum table
  uint64_t units = 0;           // of kChecksumUnitBytes; the last may be shorter
};

// Where everything lies in a bucket's file; derived from the layout alone.
struct BucketGeometry {
  uint32_t member = 0;
  uint32_t number = 0;
  uint64_t elements = 0;  // without pads
  uint64_t header_bytes = 0;
  SegmentGeometry segments[kSegmentCount];
  uint64_t checksums_offset = 0;
  uint64_t checksums_bytes = 0;  // padded to 4096
  uint64_t checksum_count = 0;
  uint64_t file_bytes = 0;
};

// An immutable layout with what follows from it. Copyable by shared pointer only.
class Layout {
 public:
  // INVALID_ARGUMENT naming the first thing that is wrong.
  static absl::StatusOr<std::shared_ptr<const Layout>> Create(v1::Layout proto);

  Layout(const Layout&) = delete;
  Layout& operator=(const Layout&) = delete;

  const v1::Layout& proto() const { return proto_; }
  uint64_t digest() const { return digest_; }  // XXH3-64 of a canonical form
  uint64_t parameters() const { return parameters_; }
  const std::vector<BucketGeometry>& buckets() const { return buckets_; }

 private:
  Layout() = default;

  v1::Layout proto_;
  uint64_t digest_ = 0;
  uint64_t parameters_ = 0;
  std::vector<BucketGeometry> buckets_;
};

}  // namespace moment::store
