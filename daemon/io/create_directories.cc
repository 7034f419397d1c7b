#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/base/errors.h"
#include "daemon/io/file_system.h"

namespace moment::io {
namespace {

// Every directory on the way, the outermost first: "a", "a/b", ... or "/a", "/a/b", ...
std::vector<std::string> WayTo(const std::string& path) {
  std::vector<std::string> way;
  std::string prefix = path.rfind('/', 0) == 0 ? "/" : "";
  for (absl::string_view name : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    const bool joined = prefix.empty() || prefix == "/";
    prefix = absl::StrCat(prefix, joined ? "" : "/", name);
    way.push_back(prefix);
  }
  return way;
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) {
    return ".";
  }
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status CheckDirectory(FileSystem& files, const std::string& path) {
  MOMENT_ASSIGN_OR_RETURN(const FileInfo info, files.Stat(path));
  return info.directory ? absl::OkStatus()
                        : absl::FailedPreconditionError(
                              absl::StrCat("create directory ", path, ": a file has this name"));
}

}  // namespace

absl::Status CreateDirectories(FileSystem& files, const std::string& path, uint32_t permissions) {
  const std::vector<std::string> way = WayTo(path);
  size_t existing = way.size();
  while (existing > 0 && absl::IsNotFound(files.Stat(way[existing - 1]).status())) {
    --existing;
  }
  if (existing > 0) {
    MOMENT_RETURN_IF_ERROR(CheckDirectory(files, way[existing - 1]));
    // A process that was killed between creating this name and syncing it left it volatile. A
    // parent that we may not open is none in which we created anything.
    const absl::Status synced = files.SyncDirectory(ParentOf(way[existing - 1]));
    if (!synced.ok() && !absl::IsPermissionDenied(synced)) {
      return synced;
    }
  }
  for (size_t index = existing; index < way.size(); ++index) {
    const absl::Status created = files.CreateDirectory(way[index], permissions);
    if (!created.ok() && !absl::IsAlreadyExists(created)) {
      return created;
    }
    MOMENT_RETURN_IF_ERROR(files.SyncDirectory(ParentOf(way[index])));
  }
  return absl::OkStatus();
}

}  // namespace moment::io
