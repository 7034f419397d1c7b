#include "daemon/store/layout_file.h"

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/checksum.h"
#include "daemon/store/uuid.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/util/json_util.h"

namespace moment::store {
namespace {

std::string WriteText(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string text;
  // Only a message with an invalid Any or timestamp fails, and ours has neither.
  (void)google::protobuf::util::MessageToJsonString(message, &text, options);
  return text;
}

// Unknown fields are skipped: the format version, or the digest, tells what is wrong.
absl::Status ReadText(absl::string_view path, absl::string_view text,
                      google::protobuf::Message& message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(
      google::protobuf::StringPiece(text.data(), text.size()), &message, options);
  if (!status.ok()) {
    return absl::DataLossError(absl::StrCat(
        path, " at offset 0: not readable as JSON of ", message.GetDescriptor()->name(), ": ",
        absl::string_view(status.message().data(), status.message().size())));
  }
  return absl::OkStatus();
}

absl::Status CheckVersion(absl::string_view path, uint32_t version, uint32_t known) {
  if (version <= known) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": format version ", version, ", this program knows ", known, "; use a newer momentd"));
}

}  // namespace

uint64_t LayoutDigest(const v1::Layout& layout) {
  std::string wire;
  {
    google::protobuf::io::StringOutputStream stream(&wire);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    layout.SerializeToCodedStream(&coded);
  }
  return Xxh64(absl::string_view(wire));
}

std::string WriteLayoutText(const v1::Layout& layout) { return WriteText(layout); }

absl::StatusOr<v1::Layout> ReadLayoutText(absl::string_view path, absl::string_view text,
                                          uint64_t digest) {
  v1::Layout layout;
  MOMENT_RETURN_IF_ERROR(ReadText(path, text, layout));
  MOMENT_RETURN_IF_ERROR(CheckVersion(path, layout.format_version(), kLayoutFormatVersion));
  if (LayoutDigest(layout) != digest) {
    return absl::DataLossError(absl::StrCat(path, " at offset 0: its content has digest ",
                                            absl::Hex(LayoutDigest(layout), absl::kZeroPad16),
                                            ", not the one of its name"));
  }
  return layout;
}

std::string WriteStoreText(const v1::StoreFile& store) { return WriteText(store); }

absl::StatusOr<v1::StoreFile> ReadStoreText(absl::string_view path, absl::string_view text) {
  v1::StoreFile store;
  MOMENT_RETURN_IF_ERROR(ReadText(path, text, store));
  MOMENT_RETURN_IF_ERROR(CheckVersion(path, store.format_version(), kStoreFormatVersion));
  if (store.format_version() == 0 || !IsUuid(store.store_uuid()) || !store.has_name()) {
    return absl::DataLossError(
        absl::StrCat(path, " at offset 0: format version, uuid or name are missing"));
  }
  return store;
}

std::string WritePinText(const v1::PinManifest& manifest) { return WriteText(manifest); }

absl::StatusOr<v1::PinManifest> ReadPinText(absl::string_view path, absl::string_view text) {
  v1::PinManifest manifest;
  MOMENT_RETURN_IF_ERROR(ReadText(path, text, manifest));
  MOMENT_RETURN_IF_ERROR(CheckVersion(path, manifest.format_version(), kPinFormatVersion));
  if (manifest.format_version() == 0 || manifest.id().empty() || manifest.commit().id() == 0) {
    return absl::DataLossError(
        absl::StrCat(path, " at offset 0: format version, id or commit are missing"));
  }
  return manifest;
}

}  // namespace moment::store
