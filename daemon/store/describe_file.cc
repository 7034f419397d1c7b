#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "daemon/store/bytes.h"
#include "daemon/store/checksum_table.h"
#include "daemon/store/commit_files.h"
#include "daemon/store/file_access.h"
#include "daemon/store/inspect.h"
#include "daemon/store/safetensors_header.h"
#include "google/protobuf/struct.pb.h"
#include "google/protobuf/util/json_util.h"

// Views of single files, by what they say of themselves.
namespace moment::store {
namespace {

using google::protobuf::Struct;
using google::protobuf::Value;

constexpr uint64_t kLengthBytes = 8;

absl::Status NoBucketFile(const std::string& path, uint64_t offset, absl::string_view why) {
  return absl::DataLossError(absl::StrCat(path, " at offset ", offset, ": no bucket file: ", why));
}

absl::StatusOr<Struct> ReadHeader(io::IoEngine& engine, io::File& file, BucketFileView& view) {
  if (view.size_bytes < base::kIoAlignment) {
    return NoBucketFile(view.path, view.size_bytes, "the file ends here");
  }
  MOMENT_ASSIGN_OR_RETURN(const base::AlignedBuffer first,
                          ReadAligned(engine, file, 0, base::kIoAlignment));
  const uint64_t json_bytes = GetUint64(first.span(), 0);
  view.header_bytes = kLengthBytes + json_bytes;
  if (json_bytes > view.size_bytes - kLengthBytes || view.header_bytes % base::kIoAlignment != 0) {
    return NoBucketFile(view.path, 0, absl::StrCat("a header of ", json_bytes, " bytes"));
  }
  MOMENT_ASSIGN_OR_RETURN(const base::AlignedBuffer whole,
                          ReadAligned(engine, file, 0, view.header_bytes));
  const absl::string_view json = AsText(whole.span().subspan(kLengthBytes));
  Struct header;
  if (!google::protobuf::util::JsonStringToMessage(
           google::protobuf::StringPiece(json.data(), json.size()), &header)
           .ok()) {
    return NoBucketFile(view.path, kLengthBytes, "the header is not JSON");
  }
  return header;
}

const Value* Find(const Struct& object, const std::string& name) {
  const auto found = object.fields().find(name);
  return found == object.fields().end() ? nullptr : &found->second;
}

// A whole number, or nullopt.
std::optional<uint64_t> WholeNumber(const Value& value) {
  constexpr double kLargest = 9007199254740992.0;  // 2^53
  const double number = value.number_value();
  if (!value.has_number_value() || number < 0 || number > kLargest ||
      number != std::floor(number)) {
    return std::nullopt;
  }
  return static_cast<uint64_t>(number);
}

std::optional<std::vector<uint64_t>> Numbers(const Value* list) {
  if (list == nullptr || !list->has_list_value()) {
    return std::nullopt;
  }
  std::vector<uint64_t> numbers;
  for (const Value& value : list->list_value().values()) {
    const std::optional<uint64_t> number = WholeNumber(value);
    if (!number.has_value()) {
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

std::optional<HeaderTensor> ReadTensor(const std::string& name, const Value& value,
                                       uint64_t header_bytes) {
  const Struct& entry = value.struct_value();
  const Value* type = Find(entry, "dtype");
  auto shape = Numbers(Find(entry, "shape"));
  const auto offsets = Numbers(Find(entry, "data_offsets"));
  if (type == nullptr || !shape.has_value() || !offsets.has_value() || offsets->size() != 2 ||
      offsets->at(0) > offsets->at(1)) {
    return std::nullopt;
  }
  return HeaderTensor{.name = name,
                      .type = type->string_value(),
                      .shape = *std::move(shape),
                      .offset = header_bytes + offsets->at(0),
                      .length_bytes = offsets->at(1) - offsets->at(0)};
}

absl::Status ReadMetadata(const Struct& header, BucketFileView& view) {
  const Value* metadata = Find(header, "__metadata__");
  const Value* format = metadata == nullptr ? nullptr : Find(metadata->struct_value(), "format");
  if (format == nullptr || format->string_value() != kHeaderFormat) {
    return NoBucketFile(view.path, kLengthBytes, "its metadata does not say so");
  }
  const Value* member = Find(metadata->struct_value(), "member");
  const Value* bucket = Find(metadata->struct_value(), "bucket");
  if (member == nullptr || bucket == nullptr ||
      !absl::SimpleAtoi(bucket->string_value(), &view.number)) {
    return NoBucketFile(view.path, kLengthBytes, "member or bucket are missing");
  }
  view.member = member->string_value();
  return absl::OkStatus();
}

absl::Status ReadTensors(const Struct& header, BucketFileView& view) {
  for (const auto& [name, value] : header.fields()) {
    if (name == "__metadata__") {
      continue;
    }
    std::optional<HeaderTensor> tensor = ReadTensor(name, value, view.header_bytes);
    if (!tensor.has_value()) {
      return NoBucketFile(view.path, kLengthBytes,
                          absl::StrCat("the entry of '", name, "' is not one of a tensor"));
    }
    view.tensors.push_back(*std::move(tensor));
  }
  std::sort(view.tensors.begin(), view.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.offset, a.name) < std::pair(b.offset, b.name);
  });
  return absl::OkStatus();
}

// Tensors follow each other without gaps up to the end of the file.
absl::Status CheckPlaces(const BucketFileView& view) {
  uint64_t end = view.header_bytes;
  for (const HeaderTensor& tensor : view.tensors) {
    if (tensor.offset != end) {
      return NoBucketFile(view.path, end,
                          absl::StrCat("'", tensor.name, "' begins at offset ", tensor.offset));
    }
    end += tensor.length_bytes;
  }
  if (end != view.size_bytes) {
    return NoBucketFile(
        view.path, std::min(end, view.size_bytes),
        absl::StrCat("its tensors end at offset ", end, ", the file at ", view.size_bytes));
  }
  return absl::OkStatus();
}

absl::Status ReadChecksums(io::IoEngine& engine, io::File& file, BucketFileView& view) {
  const auto place = std::find_if(view.tensors.begin(), view.tensors.end(), [](const auto& tensor) {
    return tensor.name == kChecksumsTensorName;
  });
  if (place == view.tensors.end() || place->length_bytes < kChecksumTableHeaderBytes ||
      place->offset % base::kIoAlignment != 0 || place->length_bytes % base::kIoAlignment != 0) {
    return NoBucketFile(view.path, view.header_bytes, "it has no checksum table");
  }
  MOMENT_ASSIGN_OR_RETURN(const base::AlignedBuffer bytes,
                          ReadAligned(engine, file, place->offset, place->length_bytes));
  const uint64_t count = ChecksumTableCount(bytes.span());
  ChecksumTable table;
  if (count > (place->length_bytes - kChecksumTableHeaderBytes) / 8 ||
      ReadChecksumTable(bytes.span(), count, table) != TableContent::kTable) {
    return absl::OkStatus();  // not written, or damaged: has_checksums stays false
  }
  view.has_checksums = true;
  view.store_uuid = table.key.store_uuid;
  view.bucket = table.key.bucket;
  view.file = table.key.file;
  view.written_by = table.key.id;
  view.checksum_count = count;
  view.checksums_digest = table.digest;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BucketFileView> DescribeBucketFile(io::FileSystem& files, io::IoEngine& engine,
                                                  const std::string& path) {
  MOMENT_ASSIGN_OR_RETURN(const std::unique_ptr<io::File> file,
                          files.Open(path, {.mode = io::OpenMode::kRead}));
  BucketFileView view;
  view.path = path;
  MOMENT_ASSIGN_OR_RETURN(view.size_bytes, file->Size());
  MOMENT_ASSIGN_OR_RETURN(const Struct header, ReadHeader(engine, *file, view));
  MOMENT_RETURN_IF_ERROR(ReadMetadata(header, view));
  MOMENT_RETURN_IF_ERROR(ReadTensors(header, view));
  MOMENT_RETURN_IF_ERROR(CheckPlaces(view));
  MOMENT_RETURN_IF_ERROR(ReadChecksums(engine, *file, view));
  return view;
}

absl::StatusOr<CommitFileView> DescribeCommitFile(io::FileSystem& files, io::IoEngine& engine,
                                                  const std::string& path) {
  MOMENT_ASSIGN_OR_RETURN(const std::unique_ptr<io::File> file,
                          files.Open(path, {.mode = io::OpenMode::kRead}));
  MOMENT_ASSIGN_OR_RETURN(CommitFileContent content, ReadCommitFile(engine, *file));
  CommitFileView view;
  view.path = path;
  view.size_bytes = content.size_bytes;
  for (size_t i = 0; i < 2; ++i) {
    view.copy_valid[i] = content.copies[i] == CopyState::kValid;
  }
  view.empty = std::all_of(std::begin(content.copies), std::end(content.copies), [](auto copy) {
    return copy == CopyState::kBlank || copy == CopyState::kErased;
  });
  if (!view.empty && !content.HasRecord()) {
    return absl::DataLossError(
        absl::StrCat(path, " at offset 0: no whole copy of a record; either a commit that was ",
                     "never acknowledged, or no commit file"));
  }
  view.record = std::move(content.record);
  return view;
}

}  // namespace moment::store
