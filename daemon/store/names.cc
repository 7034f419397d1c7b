#include "daemon/store/names.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/store/checksum.h"

namespace moment::store {
namespace {

constexpr size_t kLongestPlainName = 100;
constexpr size_t kPrefixBytes = 80;
constexpr absl::string_view kBucketPrefix = "bucket";
constexpr absl::string_view kBucketSuffix = ".safetensors";
constexpr absl::string_view kLayoutPrefix = "layout.";
constexpr absl::string_view kLayoutSuffix = ".json";

bool IsPlain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' || c == '-';
}

// Names that stand beside a member's directory in a store's.
bool IsReserved(absl::string_view name) {
  return name == kPinsDirectoryName || name == kLockFileName || absl::StartsWith(name, "store.") ||
         absl::StartsWith(name, "layout.") || absl::StartsWith(name, "commit.");
}

bool StandsForItself(absl::string_view name) {
  return !name.empty() && name.size() <= kLongestPlainName && name[0] != '.' && !IsReserved(name) &&
         std::all_of(name.begin(), name.end(), IsPlain);
}

std::string ReadablePrefix(absl::string_view name) {
  std::string prefix(name.substr(0, kPrefixBytes));
  std::replace_if(
      prefix.begin(), prefix.end(), [](char c) { return !IsPlain(c); }, '_');
  if (!prefix.empty() && prefix[0] == '.') {
    prefix[0] = '_';
  }
  return prefix;
}

}  // namespace

std::string EscapeName(absl::string_view name) {
  if (StandsForItself(name)) {
    return std::string(name);
  }
  return absl::StrCat(ReadablePrefix(name), "~", HexXxh128(name));
}

std::string Join(absl::string_view directory, absl::string_view name) {
  return absl::StrCat(absl::StripSuffix(directory, "/"), "/", name);
}

std::string ParentOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) {
    return ".";
  }
  return std::string(slash == 0 ? path.substr(0, 1) : path.substr(0, slash));
}

std::string BaseOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return std::string(slash == absl::string_view::npos ? path : path.substr(slash + 1));
}

std::string JobsDirectory(absl::string_view state_directory) {
  return Join(state_directory, "jobs");
}

std::string JobDirectory(absl::string_view state_directory, absl::string_view job) {
  return Join(JobsDirectory(state_directory), EscapeName(job));
}

std::string RoleDirectory(absl::string_view state_directory, absl::string_view job,
                          absl::string_view role) {
  return Join(JobDirectory(state_directory, job), EscapeName(role));
}

std::string RankDirectoryName(uint32_t rank) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "rank%05u", rank);
  return text.data();
}

std::string StoreDirectory(absl::string_view state_directory, const v1::StoreName& name) {
  return Join(RoleDirectory(state_directory, name.job(), name.role()),
              RankDirectoryName(name.rank()));
}

std::string LayoutFileName(uint64_t digest) {
  return absl::StrCat(kLayoutPrefix, absl::Hex(digest, absl::kZeroPad16), kLayoutSuffix);
}

std::optional<uint64_t> ParseLayoutFileName(absl::string_view name) {
  uint64_t digest = 0;
  absl::string_view digits = name;
  if (!absl::ConsumePrefix(&digits, kLayoutPrefix) ||
      !absl::ConsumeSuffix(&digits, kLayoutSuffix) || !absl::SimpleHexAtoi(digits, &digest) ||
      LayoutFileName(digest) != name) {
    return std::nullopt;
  }
  return digest;
}

std::string CommitFileName(int index) { return absl::StrCat("commit.", index); }

std::string BucketFileName(uint32_t bucket, uint32_t file) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "bucket%05u.%u", bucket, file);
  return absl::StrCat(text.data(), kBucketSuffix);
}

std::optional<BucketFileNumbers> ParseBucketFileName(absl::string_view name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, kBucketPrefix) || !absl::ConsumeSuffix(&rest, kBucketSuffix)) {
    return std::nullopt;
  }
  const size_t dot = rest.find('.');
  BucketFileNumbers numbers;
  if (dot == absl::string_view::npos || !absl::SimpleAtoi(rest.substr(0, dot), &numbers.bucket) ||
      !absl::SimpleAtoi(rest.substr(dot + 1), &numbers.file) ||
      BucketFileName(numbers.bucket, numbers.file) != name) {
    return std::nullopt;
  }
  return numbers;
}

std::string PinsDirectory(absl::string_view directory) {
  return Join(directory, kPinsDirectoryName);
}

std::string PinDirectory(absl::string_view directory, absl::string_view id) {
  return Join(PinsDirectory(directory), id);
}

std::string PinnedFileName(uint32_t bucket) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "bucket%05u", bucket);
  return absl::StrCat(text.data(), kBucketSuffix);
}

bool IsPinnedFileName(absl::string_view name) {
  absl::string_view digits = name;
  uint32_t bucket = 0;
  return absl::ConsumePrefix(&digits, kBucketPrefix) &&
         absl::ConsumeSuffix(&digits, kBucketSuffix) && absl::SimpleAtoi(digits, &bucket) &&
         PinnedFileName(bucket) == name;
}

std::string Describe(const v1::StoreName& name) {
  return absl::StrCat("job '", name.job(), "', role '", name.role(), "', rank ", name.rank());
}

}  // namespace moment::store
