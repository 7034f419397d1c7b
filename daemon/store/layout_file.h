#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "moment/v1/disk.pb.h"

// The text of store.json, layout.<digest>.json and a pin's manifest.json: proto3 JSON. A layout
// file's name is the digest of its content, so a damaged one is known by its name.
namespace moment::store {

inline constexpr uint32_t kLayoutFormatVersion = 1;
inline constexpr uint32_t kStoreFormatVersion = 1;
inline constexpr uint32_t kPinFormatVersion = 1;

// XXH3-64 of the deterministic wire form: fields in the order of their numbers, no unknown ones.
uint64_t LayoutDigest(const v1::Layout& layout);

std::string WriteLayoutText(const v1::Layout& layout);
// DATA_LOSS if the text is no layout, or not the one of this digest; `path` names it.
absl::StatusOr<v1::Layout> ReadLayoutText(absl::string_view path, absl::string_view text,
                                          uint64_t digest);

std::string WriteStoreText(const v1::StoreFile& store);
// DATA_LOSS if the text is no store file; FAILED_PRECONDITION for another format version.
absl::StatusOr<v1::StoreFile> ReadStoreText(absl::string_view path, absl::string_view text);

std::string WritePinText(const v1::PinManifest& manifest);
// The same errors.
absl::StatusOr<v1::PinManifest> ReadPinText(absl::string_view path, absl::string_view text);

}  // namespace moment::store
