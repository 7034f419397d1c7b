#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/store/layout.h"
#include "moment/v1/disk.pb.h"

// A commit file holds two copies of one record, at 0 and at its room, which is half of the file.
// Only the used length of a copy is written, rounded up to 4096; what lies behind it is whatever
// was there. A file that was made and never written has zeros. A copy, little endian:
//
//   offset  bytes  field
//   0       8      magic "MOMENTCR"; "MOMENTER" in a copy that was erased, which has no body
//   8       4      version, 1
//   12      4      zero
//   16      8      room: bytes of a half of this file
//   24      8      length of the body
//   32      8      XXH3-64 of the body
//   40      16     zero
//   56      8      XXH3-64 of bytes 0..55
//   64      n      body: moment.v1.CommitRecord
namespace moment::store {

inline constexpr char kRecordMagic[] = "MOMENTCR";
inline constexpr char kErasedMagic[] = "MOMENTER";
inline constexpr uint32_t kRecordVersion = 1;
inline constexpr uint64_t kRecordHeaderBytes = 64;
inline constexpr uint64_t kMaxBlobBytes = uint64_t{16} << 20;

// Room of one copy for any record of this layout with a blob of at most this size.
uint64_t RecordRoom(const v1::Layout& layout, uint64_t blob_limit_bytes);

// INVALID_ARGUMENT if header and body exceed the room.
absl::Status CheckRecordFits(const v1::CommitRecord& record, uint64_t room);

// Header and body, padded with zeros to 4096. INVALID_ARGUMENT if they exceed the room.
absl::StatusOr<std::string> EncodeRecord(const v1::CommitRecord& record, uint64_t room);

// What an erased copy begins with, padded with zeros to 4096.
std::string EncodeErased(uint64_t room);

struct RecordHeader {
  uint64_t room = 0;
  uint64_t body_bytes = 0;
  uint64_t body_checksum = 0;
};

enum class CopyState : uint8_t {
  kBlank,   // never written
  kErased,  // its record is of no use any more, or it never had one in a store that has commits
  kValid,
  kDamaged,  // torn, or not what was written
};

// Reads a header from the first bytes of a copy (at least 64).
CopyState DecodeRecordHeader(std::span<const std::byte> bytes, RecordHeader& header);
// Reads the body that follows it.
CopyState DecodeRecordBody(const RecordHeader& header, std::span<const std::byte> body,
                           v1::CommitRecord& record);

}  // namespace moment::store
