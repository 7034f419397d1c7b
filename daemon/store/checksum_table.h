#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

// The contents of a bucket file's __checksums__ tensor. Little endian:
//
//   offset  bytes  field
//   0       8      magic "MOMENTCK"
//   8       4      version, 1
//   12      4      bucket: index in the store's layout
//   16      16     store uuid
//   32      8      id that wrote the file
//   40      4      file number
//   44      4      zero
//   48      8      count of checksums
//   56      8      zero
//   64      8 x n  XXH3-64 of each unit of 1 MiB: main, then exp_avg, then exp_avg_sq; the last
//   unit
//                  of a segment is shorter, pads included
//   ...            zeros to a multiple of 4096
//
// Its digest, which the commit names, is the XXH3-64 of the first 64 + 8 n bytes.
namespace moment::store {

inline constexpr char kChecksumTableMagic[] = "MOMENTCK";
inline constexpr uint32_t kChecksumTableVersion = 1;
inline constexpr uint64_t kChecksumTableHeaderBytes = 64;

// Who wrote the table, and for what.
struct ChecksumTableKey {
  std::string store_uuid;  // 32 hexadecimal digits
  uint32_t bucket = 0;
  uint32_t file = 0;
  uint64_t id = 0;

  bool operator==(const ChecksumTableKey&) const = default;
};

struct ChecksumTable {
  ChecksumTableKey key;
  std::vector<uint64_t> checksums;
  uint64_t digest = 0;
};

// Bytes of a table in its file, padded.
uint64_t ChecksumTableBytes(uint64_t count);

// Fills `out`, of ChecksumTableBytes(checksums.size()) bytes, and returns the digest.
uint64_t WriteChecksumTable(const ChecksumTableKey& key, std::span<const uint64_t> checksums,
                            std::span<std::byte> out);

// The digest alone.
uint64_t TableDigest(const ChecksumTableKey& key, std::span<const uint64_t> checksums);

// The count that a table gives for itself; 0 for what is none. `bytes`: at least its header.
uint64_t ChecksumTableCount(std::span<const std::byte> bytes);

enum class TableContent : uint8_t {
  kTable,
  kNeverWritten,  // zeros
  kGarbage,
};
// Reads a table of `count` checksums from `bytes` (ChecksumTableBytes(count) of them).
TableContent ReadChecksumTable(std::span<const std::byte> bytes, uint64_t count,
                               ChecksumTable& table);

}  // namespace moment::store
