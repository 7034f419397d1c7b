#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/store/checksum_table.h"
#include "daemon/store/layout.h"
#include "daemon/store/safetensors_header.h"
#include "daemon/store/store.h"

// What is done to one bucket file. Errors name path and offset.
namespace moment::store {

std::string MemberDirectory(const std::string& directory, const v1::Layout& layout,
                            uint32_t member);
std::string BucketFilePath(const std::string& directory, const v1::Layout& layout,
                           const BucketGeometry& geometry, uint32_t file);

// Makes the file: full length, header written, all else zero. Durable after a sync of the file and
// one of its directory. On an error nothing of it stays.
absl::StatusOr<std::unique_ptr<io::File>> CreateBucketFile(const Environment& environment,
                                                           const std::string& path,
                                                           const BucketHeader& header);

// Opens it with or without write access; does not look inside.
absl::StatusOr<std::unique_ptr<io::File>> OpenBucketFile(const Environment& environment,
                                                         const std::string& path, bool writable);

// DATA_LOSS if length or header are not those of the bucket.
absl::Status CheckBucketFile(io::IoEngine& engine, io::File& file, const BucketHeader& header);

// Gives a file that no record names its length and header back, synced.
absl::Status RepairBucketFile(io::IoEngine& engine, io::File& file, const BucketHeader& header);

// The checksum table. DATA_LOSS if there is none.
absl::StatusOr<ChecksumTable> ReadTable(io::IoEngine& engine, io::File& file,
                                        const BucketGeometry& geometry);
// The same, and DATA_LOSS if it is not the one that the commit names: its key or digest differ.
absl::StatusOr<ChecksumTable> ReadNamedTable(io::IoEngine& engine, io::File& file,
                                             const BucketGeometry& geometry,
                                             const ChecksumTableKey& key, uint64_t digest);
// Writes the table of an image; returns its digest. Not synced.
absl::StatusOr<uint64_t> WriteTable(io::IoEngine& engine, const BucketImage& image,
                                    const BucketGeometry& geometry, const std::string& store_uuid);

}  // namespace moment::store
