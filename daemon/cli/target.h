#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "moment/v1/types.pb.h"

namespace moment::cli {

// What a command line names.
struct Target {
  enum class Kind : uint8_t { kEverything, kStore, kPath };

  Kind kind = Kind::kEverything;
  v1::StoreName name;  // kStore
  std::string path;    // kPath
};

// What starts with '/' or '.' is a path. Else "job/role/rank", where the rank is decimal and the
// job may contain slashes; else a relative path. "" is everything.
Target ParseTarget(absl::string_view text);

// "job/role/rank", as ParseTarget reads it.
std::string NameText(const v1::StoreName& name);

// What a path of the file system is.
struct PathTarget {
  enum class Kind : uint8_t { kStateDirectory, kStore, kBucketFile, kCommitFile };

  Kind kind = Kind::kStateDirectory;
  std::string path;             // absolute, without symbolic links
  std::string store_directory;  // all but kStateDirectory
  // The directory above that holds LOCK; "" for a copy that lies elsewhere and has no owner.
  std::string state_directory;
};

// NOT_FOUND if nothing is there; INVALID_ARGUMENT for what is none of the four.
absl::StatusOr<PathTarget> ClassifyPath(const std::string& path);

bool SameName(const v1::StoreName& a, const v1::StoreName& b);

}  // namespace moment::cli
