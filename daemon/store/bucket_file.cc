#include "daemon/store/bucket_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "daemon/store/bytes.h"
#include "daemon/store/file_access.h"
#include "daemon/store/names.h"

namespace moment::store {
namespace {

absl::Status Damaged(const io::File& file, uint64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(file.path(), " at offset ", offset, ": ", what));
}

absl::Status Fill(const Environment& environment, io::File& file, const BucketHeader& header) {
  MOMENT_RETURN_IF_ERROR(file.Allocate(header.geometry.file_bytes));
  return WriteAligned(*environment.engine, file, 0, header.bytes);
}

std::string KeyText(const ChecksumTableKey& key) {
  return absl::StrCat("bucket ", key.bucket, ", file ", key.file, " by id ", key.id, " of store ",
                      key.store_uuid);
}

}  // namespace

std::string MemberDirectory(const std::string& directory, const v1::Layout& layout,
                            uint32_t member) {
  return Join(directory, EscapeName(layout.members(static_cast<int>(member)).name()));
}

std::string BucketFilePath(const std::string& directory, const v1::Layout& layout,
                           const BucketGeometry& geometry, uint32_t file) {
  return Join(MemberDirectory(directory, layout, geometry.member),
              BucketFileName(geometry.number, file));
}

absl::StatusOr<std::unique_ptr<io::File>> CreateBucketFile(const Environment& environment,
                                                           const std::string& path,
                                                           const BucketHeader& header) {
  MOMENT_ASSIGN_OR_RETURN(
      std::unique_ptr<io::File> file,
      environment.files->Open(path, {.mode = io::OpenMode::kCreate,
                                     .direct = environment.direct_io,
                                     .permissions = environment.file_permissions}));
  if (const absl::Status filled = Fill(environment, *file, header); !filled.ok()) {
    file.reset();
    environment.files->Unlink(path).IgnoreError();
    return filled;
  }
  return file;
}

absl::StatusOr<std::unique_ptr<io::File>> OpenBucketFile(const Environment& environment,
                                                         const std::string& path, bool writable) {
  return environment.files->Open(path,
                                 {.mode = writable ? io::OpenMode::kReadWrite : io::OpenMode::kRead,
                                  .direct = environment.direct_io});
}

absl::Status CheckBucketFile(io::IoEngine& engine, io::File& file, const BucketHeader& header) {
  MOMENT_ASSIGN_OR_RETURN(const uint64_t size, file.Size());
  if (size != header.geometry.file_bytes) {
    return Damaged(
        file, std::min(size, header.geometry.file_bytes),
        absl::StrCat("the file has ", size, " bytes, the bucket ", header.geometry.file_bytes));
  }
  MOMENT_ASSIGN_OR_RETURN(const base::AlignedBuffer read,
                          ReadAligned(engine, file, 0, header.geometry.header_bytes));
  const absl::string_view text = AsText(read.span());
  const auto difference = std::mismatch(text.begin(), text.end(), header.bytes.begin()).first;
  if (difference != text.end()) {
    return Damaged(file, static_cast<uint64_t>(difference - text.begin()),
                   "the header is not the one of the bucket");
  }
  return absl::OkStatus();
}

absl::Status RepairBucketFile(io::IoEngine& engine, io::File& file, const BucketHeader& header) {
  MOMENT_RETURN_IF_ERROR(file.Allocate(header.geometry.file_bytes));
  MOMENT_RETURN_IF_ERROR(WriteAligned(engine, file, 0, header.bytes));
  return io::Sync(engine, file);
}

absl::StatusOr<ChecksumTable> ReadTable(io::IoEngine& engine, io::File& file,
                                        const BucketGeometry& geometry) {
  MOMENT_ASSIGN_OR_RETURN(
      const base::AlignedBuffer bytes,
      ReadAligned(engine, file, geometry.checksums_offset, geometry.checksums_bytes));
  ChecksumTable table;
  switch (ReadChecksumTable(bytes.span(), geometry.checksum_count, table)) {
    case TableContent::kTable:
      return table;
    case TableContent::kNeverWritten:
      return Damaged(file, geometry.checksums_offset, "the checksum table was never written");
    case TableContent::kGarbage:
      break;
  }
  return Damaged(file, geometry.checksums_offset, "this is no checksum table of the bucket");
}

absl::StatusOr<ChecksumTable> ReadNamedTable(io::IoEngine& engine, io::File& file,
                                             const BucketGeometry& geometry,
                                             const ChecksumTableKey& key, uint64_t digest) {
  MOMENT_ASSIGN_OR_RETURN(ChecksumTable table, ReadTable(engine, file, geometry));
  if (!(table.key == key)) {
    return Damaged(
        file, geometry.checksums_offset,
        absl::StrCat("the file holds ", KeyText(table.key), "; the commit names ", KeyText(key)));
  }
  if (table.digest != digest) {
    return Damaged(file, geometry.checksums_offset,
                   "the checksum table differs from the one that the commit names");
  }
  return table;
}

absl::StatusOr<uint64_t> WriteTable(io::IoEngine& engine, const BucketImage& image,
                                    const BucketGeometry& geometry, const std::string& store_uuid) {
  MOMENT_ASSIGN_OR_RETURN(const base::AlignedBuffer bytes,
                          base::AlignedBuffer::Allocate(geometry.checksums_bytes));
  const ChecksumTableKey key{.store_uuid = store_uuid,
                             .bucket = image.bucket(),
                             .file = image.file_number(),
                             .id = image.written_by()};
  const uint64_t digest = WriteChecksumTable(key, image.checksums(), bytes.span());
  MOMENT_RETURN_IF_ERROR(io::Write(engine, image.file(), geometry.checksums_offset, bytes.data(),
                                   geometry.checksums_bytes));
  return digest;
}

}  // namespace moment::store
