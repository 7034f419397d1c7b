#include "daemon/store/safetensors_header.h"

#include <algorithm>
#include <span>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/memory.h"
#include "daemon/store/checksum_table.h"
#include "daemon/store/json_text.h"

namespace moment::store {
namespace {

// What surrounds a name and a shape in one entry: prefix, type, two offsets of 20 digits.
constexpr uint64_t kEntryBytesBound = 160;
constexpr uint64_t kDimensionBytesBound = 21;
// A character becomes at most \u00XX.
constexpr uint64_t kEscapedBytesBound = 6;
constexpr uint64_t kHeaderLengthBytes = 8;

class HeaderWriter {
 public:
  HeaderWriter(const v1::Layout& layout, const v1::Bucket& bucket)
      : layout_(layout), bucket_(bucket) {
    json_ = absl::StrCat("{\"__metadata__\":{\"format\":\"", kHeaderFormat, "\",\"version\":\"",
                         kHeaderVersion, "\",\"member\":");
    AppendJsonString(Member().name(), json_);
    absl::StrAppend(&json_, ",\"bucket\":\"", bucket_.number(), "\"}");
  }

  const v1::Member& Member() const { return layout_.members(static_cast<int>(bucket_.member())); }

  void AddSegment(int segment) {
    const v1::DataType type = SegmentType(Member(), segment);
    const uint64_t begin = offset_;
    for (const v1::BucketSlice& slice : bucket_.slices()) {
      AddSlice(segment, type, slice);
    }
    AddPad(segment, base::RoundUp(offset_ - begin, base::kIoAlignment) - (offset_ - begin));
  }

  void AddChecksums(uint64_t length_bytes) {
    AddEntry(kChecksumsTensorName, "U8", std::vector<uint64_t>{length_bytes}, length_bytes);
  }

  std::string Finish() {
    json_ += '}';
    const uint64_t whole = base::RoundUp(kHeaderLengthBytes + json_.size(), base::kIoAlignment);
    json_.resize(whole - kHeaderLengthBytes, ' ');
    std::string length(kHeaderLengthBytes, '\0');
    for (size_t i = 0; i < length.size(); ++i) {
      length[i] = static_cast<char>((json_.size() >> (8 * i)) & 0xff);
    }
    return length + json_;
  }

 private:
  void AddSlice(int segment, v1::DataType type, const v1::BucketSlice& slice) {
    const v1::Tensor& tensor = layout_.tensors(static_cast<int>(slice.tensor()));
    const bool whole = slice.element_count() == ElementCount(tensor);
    const std::string name =
        whole ? absl::StrCat(SegmentName(segment), "/", tensor.name())
              : absl::StrCat(SegmentName(segment), "@", slice.element_offset(), "/", tensor.name());
    const std::vector<uint64_t> shape =
        whole ? std::vector<uint64_t>(tensor.shape().begin(), tensor.shape().end())
              : std::vector<uint64_t>{slice.element_count()};
    AddEntry(name, SafetensorsType(type), shape, slice.element_count() * SizeBytes(type));
  }

  void AddPad(int segment, uint64_t length_bytes) {
    if (length_bytes > 0) {
      AddEntry(absl::StrCat(kPadTensorPrefix, SegmentName(segment)), "U8",
               std::vector<uint64_t>{length_bytes}, length_bytes);
    }
  }

  void AddEntry(absl::string_view name, absl::string_view type, const std::vector<uint64_t>& shape,
                uint64_t length_bytes) {
    json_ += ',';
    AppendJsonString(name, json_);
    absl::StrAppend(&json_, ":{\"dtype\":\"", type, "\",\"shape\":[", absl::StrJoin(shape, ","),
                    "],\"data_offsets\":[", offset_, ",", offset_ + length_bytes, "]}");
    offset_ += length_bytes;
  }

  const v1::Layout& layout_;
  const v1::Bucket& bucket_;
  std::string json_;
  uint64_t offset_ = 0;  // behind the header
};

uint64_t Units(uint64_t length_bytes) {
  return (length_bytes + kChecksumUnitBytes - 1) / kChecksumUnitBytes;
}

// Everything but offsets, which begin at 0 behind the header until it is known.
BucketGeometry Measure(const v1::Layout& layout, const v1::Bucket& bucket) {
  BucketGeometry geometry;
  geometry.member = bucket.member();
  geometry.number = bucket.number();
  for (const v1::BucketSlice& slice : bucket.slices()) {
    geometry.elements += slice.element_count();
  }
  uint64_t offset = 0;
  for (int i = 0; i < kSegmentCount; ++i) {
    SegmentGeometry& segment = geometry.segments[i];
    segment.type = SegmentType(layout.members(static_cast<int>(bucket.member())), i);
    segment.offset = offset;
    segment.length_bytes =
        base::RoundUp(geometry.elements * SizeBytes(segment.type), base::kIoAlignment);
    segment.first_checksum = geometry.checksum_count;
    segment.units = Units(segment.length_bytes);
    geometry.checksum_count += segment.units;
    offset += segment.length_bytes;
  }
  geometry.checksums_offset = offset;
  geometry.checksums_bytes = ChecksumTableBytes(geometry.checksum_count);
  geometry.file_bytes = offset + geometry.checksums_bytes;
  return geometry;
}

void MoveBehindHeader(uint64_t header_bytes, BucketGeometry& geometry) {
  geometry.header_bytes = header_bytes;
  for (SegmentGeometry& segment : geometry.segments) {
    segment.offset += header_bytes;
  }
  geometry.checksums_offset += header_bytes;
  geometry.file_bytes += header_bytes;
}

}  // namespace

const char* SafetensorsType(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FLOAT32:
      return "F32";
    case v1::DATA_TYPE_BFLOAT16:
      return "BF16";
    case v1::DATA_TYPE_FLOAT16:
      return "F16";
    default:
      return "";
  }
}

uint64_t HeaderBytesBound(const v1::Tensor& tensor) {
  return kSegmentCount * (kEntryBytesBound + kEscapedBytesBound * tensor.name().size() +
                          kDimensionBytesBound * static_cast<uint64_t>(tensor.shape_size()));
}

uint64_t HeaderBaseBytesBound(const v1::Member& member) {
  return (kSegmentCount + 2) * kEntryBytesBound + kEscapedBytesBound * member.name().size();
}

BucketHeader BuildHeader(const v1::Layout& layout, const v1::Bucket& bucket) {
  BucketHeader header;
  header.geometry = Measure(layout, bucket);
  HeaderWriter writer(layout, bucket);
  for (int segment = 0; segment < kSegmentCount; ++segment) {
    writer.AddSegment(segment);
  }
  writer.AddChecksums(header.geometry.checksums_bytes);
  header.bytes = writer.Finish();
  MoveBehindHeader(header.bytes.size(), header.geometry);
  return header;
}

}  // namespace moment::store
