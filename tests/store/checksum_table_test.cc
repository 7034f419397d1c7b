#include "daemon/store/checksum_table.h"

#include "daemon/store/checksum.h"
#include "daemon/store/uuid.h"
#include "tests/support/catch.h"

namespace moment::store {
namespace {

const ChecksumTableKey kKey{
    .store_uuid = "00112233445566778899aabbccddeeff", .bucket = 5, .file = 2, .id = 77};

TEST_CASE("Checksum table: what was written is read, with the same digest", "[store]") {
  const std::vector<uint64_t> checksums = {1, UINT64_MAX, 3};
  std::vector<std::byte> bytes(ChecksumTableBytes(checksums.size()));
  const uint64_t digest = WriteChecksumTable(kKey, checksums, bytes);
  ChecksumTable table;
  REQUIRE(ReadChecksumTable(bytes, checksums.size(), table) == TableContent::kTable);
  CHECK(table.key == kKey);
  CHECK(table.checksums == checksums);
  CHECK(table.digest == digest);
  CHECK(TableDigest(kKey, checksums) == digest);
  CHECK(ChecksumTableCount(bytes) == 3);
}

TEST_CASE("Checksum table: any flipped bit changes the digest or is no table", "[store]") {
  const std::vector<uint64_t> checksums = {1, 2};
  std::vector<std::byte> bytes(ChecksumTableBytes(checksums.size()));
  const uint64_t digest = WriteChecksumTable(kKey, checksums, bytes);
  for (size_t at = 0; at < 64 + 16; ++at) {
    std::vector<std::byte> flipped = bytes;
    flipped[at] ^= std::byte{4};
    ChecksumTable table;
    const TableContent content = ReadChecksumTable(flipped, checksums.size(), table);
    INFO("byte " << at);
    CHECK((content != TableContent::kTable || table.digest != digest));
  }
}

TEST_CASE("Checksum table: zeros were never written", "[store]") {
  ChecksumTable table;
  CHECK(ReadChecksumTable(std::vector<std::byte>(4096), 10, table) == TableContent::kNeverWritten);
  CHECK(ReadChecksumTable(std::vector<std::byte>(4096, std::byte{1}), 10, table) ==
        TableContent::kGarbage);
}

TEST_CASE("Checksum table: it takes whole blocks of 4096", "[store]") {
  CHECK(ChecksumTableBytes(0) == 4096);
  CHECK(ChecksumTableBytes(504) == 4096);
  CHECK(ChecksumTableBytes(505) == 8192);
}

TEST_CASE("Checksums: they are XXH3", "[store]") {
  CHECK(Xxh64(absl::string_view()) == 0x2d06800538d394c2U);
  CHECK(HexXxh128("") == "99aa06d3014798d86001c324468d497f");
}

TEST_CASE("Uuids: they are 32 hexadecimal digits, each another", "[store]") {
  CHECK(IsUuid(NewUuid()));
  CHECK(NewUuid() != NewUuid());
  CHECK(UuidText(UuidBytes(kKey.store_uuid)) == kKey.store_uuid);
  CHECK(!IsUuid("00112233445566778899AABBCCDDEEFF"));
  CHECK(!IsUuid("0011"));
}

}  // namespace
}  // namespace moment::store
