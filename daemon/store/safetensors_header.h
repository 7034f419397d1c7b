#pragma once

#include <cstdint>
#include <string>

#include "daemon/store/layout.h"
#include "moment/v1/disk.pb.h"

// The header of a bucket file: 8 bytes of length (little endian), then JSON padded with spaces to a
// multiple of 4096 in all. A function of the layout alone, so it is the same in every file of a
// bucket, and writing a file never touches it.
//
//   "__metadata__"        format, version, member, bucket
//   "<segment>/<tensor>"  a whole tensor, in its own shape
//   "<segment>@<n>/<tensor>"  a slice of a tensor from its element n on, flat
//   "__pad__/<segment>"   what fills the segment to a multiple of 4096, if anything does
//   "__checksums__"       the checksum table (checksum_table.h)
namespace moment::store {

inline constexpr char kHeaderFormat[] = "momentd bucket";
inline constexpr char kHeaderVersion[] = "1";
inline constexpr char kChecksumsTensorName[] = "__checksums__";
inline constexpr char kPadTensorPrefix[] = "__pad__/";

// "F32", "BF16", "F16".
const char* SafetensorsType(v1::DataType type);

// An upper bound of what one slice of this tensor adds to a header, all segments together.
uint64_t HeaderBytesBound(const v1::Tensor& tensor);

// The upper bound of the rest of a header of this member.
uint64_t HeaderBaseBytesBound(const v1::Member& member);

// Fills every field of a bucket's geometry, header_bytes included, and returns the header.
// `layout` must be consistent (Layout::Create checks it first).
struct BucketHeader {
  BucketGeometry geometry;
  std::string bytes;  // geometry.header_bytes of them
};
BucketHeader BuildHeader(const v1::Layout& layout, const v1::Bucket& bucket);

}  // namespace moment::store
