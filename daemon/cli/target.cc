#include "daemon/cli/target.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/names.h"

namespace moment::cli {
namespace {

namespace fs = std::filesystem;

std::optional<uint32_t> ParseRank(absl::string_view text) {
  uint32_t rank = 0;
  const bool digits = std::all_of(text.begin(), text.end(), [](char letter) {
    return absl::ascii_isdigit(static_cast<unsigned char>(letter));
  });
  if (!digits || !absl::SimpleAtoi(text, &rank)) {
    return std::nullopt;
  }
  return rank;
}

std::optional<v1::StoreName> ParseName(absl::string_view text) {
  const size_t rank_slash = text.rfind('/');
  if (rank_slash == absl::string_view::npos || rank_slash == 0) {
    return std::nullopt;
  }
  const size_t role_slash = text.rfind('/', rank_slash - 1);
  if (role_slash == absl::string_view::npos || role_slash == 0 || role_slash + 1 == rank_slash) {
    return std::nullopt;
  }
  const std::optional<uint32_t> rank = ParseRank(text.substr(rank_slash + 1));
  if (!rank.has_value()) {
    return std::nullopt;
  }
  v1::StoreName name;
  name.set_job(std::string(text.substr(0, role_slash)));
  name.set_role(std::string(text.substr(role_slash + 1, rank_slash - role_slash - 1)));
  name.set_rank(*rank);
  return name;
}

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

absl::StatusOr<PathTarget::Kind> KindOfDirectory(const fs::path& path) {
  if (Exists(path / store::kStoreFileName) || Exists(path / store::CommitFileName(0))) {
    return PathTarget::Kind::kStore;
  }
  if (Exists(path / store::kLockFileName) || Exists(store::JobsDirectory(path.string()))) {
    return PathTarget::Kind::kStateDirectory;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path.string(),
                   ": neither a state directory (no LOCK, no jobs/) nor a store (no "
                   "store.json, no commit.0)"));
}

bool IsCommitFileName(const std::string& name) {
  for (int i = 0; i < store::kCommitFiles; ++i) {
    if (name == store::CommitFileName(i)) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<PathTarget::Kind> KindOfFile(const fs::path& path) {
  const std::string name = path.filename().string();
  if (IsCommitFileName(name)) {
    return PathTarget::Kind::kCommitFile;
  }
  if (absl::EndsWith(name, ".safetensors")) {
    return PathTarget::Kind::kBucketFile;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path.string(),
                   ": neither a bucket file (*.safetensors) nor a commit file "
                   "(commit.0 .. commit.3)"));
}

fs::path StoreDirectoryOf(PathTarget::Kind kind, const fs::path& path) {
  switch (kind) {
    case PathTarget::Kind::kStateDirectory:
      return {};
    case PathTarget::Kind::kStore:
      return path;
    case PathTarget::Kind::kCommitFile:
      return path.parent_path();
    case PathTarget::Kind::kBucketFile:
      return path.parent_path().parent_path();  // a directory for each member
  }
  return {};
}

fs::path StateDirectoryOf(const fs::path& path) {
  for (fs::path above = path; above.has_relative_path(); above = above.parent_path()) {
    if (Exists(above / store::kLockFileName)) {
      return above;
    }
  }
  return {};
}

}  // namespace

Target ParseTarget(absl::string_view text) {
  Target target;
  if (text.empty()) {
    return target;
  }
  if (text[0] != '/' && text[0] != '.') {
    if (const std::optional<v1::StoreName> name = ParseName(text); name.has_value()) {
      target.kind = Target::Kind::kStore;
      target.name = *name;
      return target;
    }
  }
  target.kind = Target::Kind::kPath;
  target.path = std::string(text);
  return target;
}

std::string NameText(const v1::StoreName& name) {
  return absl::StrCat(name.job(), "/", name.role(), "/", name.rank());
}

absl::StatusOr<PathTarget> ClassifyPath(const std::string& path) {
  std::error_code error;
  const fs::path absolute = fs::canonical(path, error);
  if (error) {
    return base::ErrnoStatus(error.value(), "find", path);
  }
  PathTarget target;
  target.path = absolute.string();
  if (fs::is_directory(absolute, error)) {
    MOMENT_ASSIGN_OR_RETURN(target.kind, KindOfDirectory(absolute));
  } else {
    MOMENT_ASSIGN_OR_RETURN(target.kind, KindOfFile(absolute));
  }
  target.store_directory = StoreDirectoryOf(target.kind, absolute).string();
  target.state_directory = StateDirectoryOf(absolute).string();
  return target;
}

bool SameName(const v1::StoreName& a, const v1::StoreName& b) {
  return a.job() == b.job() && a.role() == b.role() && a.rank() == b.rank();
}

}  // namespace moment::cli
