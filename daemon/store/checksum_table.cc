#include "daemon/store/checksum_table.h"

#include <algorithm>

#include "daemon/base/memory.h"
#include "daemon/store/bytes.h"
#include "daemon/store/checksum.h"
#include "daemon/store/uuid.h"

namespace moment::store {
namespace {

constexpr size_t kMagicOffset = 0;
constexpr size_t kVersionOffset = 8;
constexpr size_t kBucketOffset = 12;
constexpr size_t kUuidOffset = 16;
constexpr size_t kIdOffset = 32;
constexpr size_t kFileOffset = 40;
constexpr size_t kCountOffset = 48;
constexpr size_t kMagicBytes = 8;

uint64_t UsedBytes(uint64_t count) { return kChecksumTableHeaderBytes + 8 * count; }

}  // namespace

uint64_t ChecksumTableBytes(uint64_t count) {
  return base::RoundUp(UsedBytes(count), base::kIoAlignment);
}

uint64_t WriteChecksumTable(const ChecksumTableKey& key, std::span<const uint64_t> checksums,
                            std::span<std::byte> out) {
  std::fill(out.begin(), out.end(), std::byte{0});
  PutText(out, kMagicOffset, kChecksumTableMagic);
  PutUint32(out, kVersionOffset, kChecksumTableVersion);
  PutUint32(out, kBucketOffset, key.bucket);
  PutText(out, kUuidOffset, UuidBytes(key.store_uuid));
  PutUint64(out, kIdOffset, key.id);
  PutUint32(out, kFileOffset, key.file);
  PutUint64(out, kCountOffset, checksums.size());
  for (size_t i = 0; i < checksums.size(); ++i) {
    PutUint64(out, kChecksumTableHeaderBytes + 8 * i, checksums[i]);
  }
  return Xxh64(std::span<const std::byte>(out.first(UsedBytes(checksums.size()))));
}

uint64_t TableDigest(const ChecksumTableKey& key, std::span<const uint64_t> checksums) {
  std::vector<std::byte> table(ChecksumTableBytes(checksums.size()));
  return WriteChecksumTable(key, checksums, table);
}

uint64_t ChecksumTableCount(std::span<const std::byte> bytes) {
  return AsText(bytes.subspan(kMagicOffset, kMagicBytes)) == kChecksumTableMagic
             ? GetUint64(bytes, kCountOffset)
             : 0;
}

TableContent ReadChecksumTable(std::span<const std::byte> bytes, uint64_t count,
                               ChecksumTable& table) {
  if (AsText(bytes.subspan(kMagicOffset, kMagicBytes)) != kChecksumTableMagic ||
      GetUint32(bytes, kVersionOffset) != kChecksumTableVersion ||
      GetUint64(bytes, kCountOffset) != count) {
    const bool zero =
        std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
    return zero ? TableContent::kNeverWritten : TableContent::kGarbage;
  }
  table.key.store_uuid = UuidText(AsText(bytes.subspan(kUuidOffset, kUuidBytes)));
  table.key.bucket = GetUint32(bytes, kBucketOffset);
  table.key.file = GetUint32(bytes, kFileOffset);
  table.key.id = GetUint64(bytes, kIdOffset);
  table.checksums.resize(count);
  for (size_t i = 0; i < count; ++i) {
    table.checksums[i] = GetUint64(bytes, kChecksumTableHeaderBytes + 8 * i);
  }
  table.digest = Xxh64(bytes.first(UsedBytes(count)));
  return TableContent::kTable;
}

}  // namespace moment::store
