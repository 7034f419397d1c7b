#include "daemon/store/commit_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "daemon/store/bytes.h"
#include "daemon/store/checksum.h"

namespace moment::store {
namespace {

constexpr size_t kMagicOffset = 0;
constexpr size_t kMagicBytes = 8;
constexpr size_t kVersionOffset = 8;
constexpr size_t kRoomOffset = 16;
constexpr size_t kLengthOffset = 24;
constexpr size_t kBodyChecksumOffset = 32;
constexpr size_t kHeaderChecksumOffset = 56;

// Upper bounds of the parts of a CommitRecord on the wire.
constexpr uint64_t kFixedPartsBytes = 8192;  // ids, uuid, step_id, framing, empty groups
constexpr uint64_t kBucketBytes = 40;
// A tensor with its own t (24), its own run (20) and its own group of hyperparameters (96).
constexpr uint64_t kTensorBytes = 140;

void WriteHeader(absl::string_view magic, const RecordHeader& header, std::span<std::byte> out) {
  PutText(out, kMagicOffset, magic);
  PutUint32(out, kVersionOffset, kRecordVersion);
  PutUint64(out, kRoomOffset, header.room);
  PutUint64(out, kLengthOffset, header.body_bytes);
  PutUint64(out, kBodyChecksumOffset, header.body_checksum);
  PutUint64(out, kHeaderChecksumOffset,
            Xxh64(std::span<const std::byte>(out.first(kHeaderChecksumOffset))));
}

}  // namespace

uint64_t RecordRoom(const v1::Layout& layout, uint64_t blob_limit_bytes) {
  const uint64_t bytes = kRecordHeaderBytes + kFixedPartsBytes +
                         kBucketBytes * static_cast<uint64_t>(layout.buckets_size()) +
                         kTensorBytes * static_cast<uint64_t>(layout.tensors_size()) +
                         blob_limit_bytes;
  return base::RoundUp(bytes, base::kIoAlignment);
}

absl::Status CheckRecordFits(const v1::CommitRecord& record, uint64_t room) {
  const uint64_t needed = kRecordHeaderBytes + record.ByteSizeLong();
  if (needed > room) {
    return absl::InvalidArgumentError(
        absl::StrCat("the commit of sequence ", record.sequence(), " needs ", needed,
                     " bytes, its record has room for ", room, "; its blob has ",
                     record.blob().size(), " bytes"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> EncodeRecord(const v1::CommitRecord& record, uint64_t room) {
  MOMENT_RETURN_IF_ERROR(CheckRecordFits(record, room));
  const std::string body = record.SerializeAsString();
  std::string encoded(base::RoundUp(kRecordHeaderBytes + body.size(), base::kIoAlignment), '\0');
  const std::span<std::byte> bytes(reinterpret_cast<std::byte*>(encoded.data()), encoded.size());
  WriteHeader(kRecordMagic, {room, body.size(), Xxh64(absl::string_view(body))}, bytes);
  std::copy(body.begin(), body.end(),
            encoded.begin() + static_cast<std::ptrdiff_t>(kRecordHeaderBytes));
  return encoded;
}

std::string EncodeErased(uint64_t room) {
  std::string encoded(base::kIoAlignment, '\0');
  WriteHeader(kErasedMagic, {.room = room},
              {reinterpret_cast<std::byte*>(encoded.data()), encoded.size()});
  return encoded;
}

CopyState DecodeRecordHeader(std::span<const std::byte> bytes, RecordHeader& header) {
  const std::span<const std::byte> head = bytes.first(kRecordHeaderBytes);
  if (std::all_of(head.begin(), head.end(), [](std::byte b) { return b == std::byte{0}; })) {
    return CopyState::kBlank;
  }
  const absl::string_view magic = AsText(head.subspan(kMagicOffset, kMagicBytes));
  if ((magic != kRecordMagic && magic != kErasedMagic) ||
      GetUint32(head, kVersionOffset) != kRecordVersion ||
      GetUint64(head, kHeaderChecksumOffset) != Xxh64(head.first(kHeaderChecksumOffset))) {
    return CopyState::kDamaged;
  }
  if (magic == kErasedMagic) {
    return CopyState::kErased;
  }
  header.room = GetUint64(head, kRoomOffset);
  header.body_bytes = GetUint64(head, kLengthOffset);
  header.body_checksum = GetUint64(head, kBodyChecksumOffset);
  const bool fits = header.room >= kRecordHeaderBytes && header.room % base::kIoAlignment == 0 &&
                    header.body_bytes <= header.room - kRecordHeaderBytes;
  return fits ? CopyState::kValid : CopyState::kDamaged;
}

CopyState DecodeRecordBody(const RecordHeader& header, std::span<const std::byte> body,
                           v1::CommitRecord& record) {
  if (body.size() != header.body_bytes || Xxh64(body) != header.body_checksum ||
      !record.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return CopyState::kDamaged;
  }
  return CopyState::kValid;
}

}  // namespace moment::store
