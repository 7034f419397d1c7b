#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "moment/v1/types.pb.h"

// Every file and directory name of the state directory is made, and recognised, here.
namespace moment::store {

inline constexpr int kCommitFiles = 4;
inline constexpr char kStoreFileName[] = "store.json";
inline constexpr char kStoreFileTemporaryName[] = "store.json.tmp";
inline constexpr char kCommitFileTemporaryName[] = "commit.tmp";
inline constexpr char kPinsDirectoryName[] = "pins";
inline constexpr char kManifestFileName[] = "manifest.json";
inline constexpr char kManifestTemporaryName[] = "manifest.json.tmp";
inline constexpr char kLockFileName[] = "LOCK";

// A name as one component of a path, of at most 255 bytes. Names of letters, digits, '.', '_' and
// '-' that are short and not reserved stand for themselves; any other becomes a readable prefix,
// '~' and 32 hexadecimal digits of its XXH3-128. Two names never meet in practice; store.json holds
// the true one, which Open compares.
std::string EscapeName(absl::string_view name);

std::string Join(absl::string_view directory, absl::string_view name);
// The directory part of a path.
std::string ParentOf(absl::string_view path);
// The last component of a path.
std::string BaseOf(absl::string_view path);

std::string JobsDirectory(absl::string_view state_directory);
std::string JobDirectory(absl::string_view state_directory, absl::string_view job);
std::string RoleDirectory(absl::string_view state_directory, absl::string_view job,
                          absl::string_view role);
std::string RankDirectoryName(uint32_t rank);  // "rank00000"
std::string StoreDirectory(absl::string_view state_directory, const v1::StoreName& name);

std::string LayoutFileName(uint64_t digest);  // "layout.0123456789abcdef.json"
std::optional<uint64_t> ParseLayoutFileName(absl::string_view name);

std::string CommitFileName(int index);  // "commit.0"

std::string BucketFileName(uint32_t bucket, uint32_t file);  // "bucket00000.7.safetensors"
struct BucketFileNumbers {
  uint32_t bucket = 0;  // within the member
  uint32_t file = 0;
};
// Only names that BucketFileName makes.
std::optional<BucketFileNumbers> ParseBucketFileName(absl::string_view name);

std::string PinsDirectory(absl::string_view directory);  // of a store's directory
std::string PinDirectory(absl::string_view directory, absl::string_view id);
std::string PinnedFileName(uint32_t bucket);  // "bucket00000.safetensors"
bool IsPinnedFileName(absl::string_view name);

// How a store is called in messages: job 'a', role 'b', rank 0.
std::string Describe(const v1::StoreName& name);

}  // namespace moment::store
