#include "client/src/socket_path.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/src/errors.h"

namespace moment::client {
namespace {

constexpr char kDefaultSocketPath[] = "/run/momentd/momentd.sock";
constexpr char kDescriptorSocketName[] = "fd.sock";

absl::string_view Given(absl::string_view argument) {
  if (!argument.empty()) {
    return argument;
  }
  const char* environment = std::getenv("MOMENTD_SOCKET");
  return environment != nullptr && *environment != '\0' ? environment : kDefaultSocketPath;
}

}  // namespace

absl::StatusOr<std::string> ResolveSocketPath(absl::string_view argument) {
  const absl::string_view given = Given(argument);
  absl::string_view path = given;
  if (absl::ConsumePrefix(&path, "unix:")) {
    absl::ConsumePrefix(&path, "//");
  } else if (absl::StrContains(path, "://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket ", given, ": momentd listens on Unix sockets; give a path"));
  }
  if (path.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("socket ", given, ": no path in it"));
  }
  if (path.size() > kMaxSocketPathBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket path of ", path.size(), " bytes, the kernel allows ",
                     kMaxSocketPathBytes, "; choose a shorter directory: ", path));
  }
  return std::string(path);
}

absl::Status CheckSocketFile(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) {
      return absl::OkStatus();
    }
    return FromErrno(errno, "looking at socket", path);
  }
  if (!S_ISSOCK(status.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a ", S_ISDIR(status.st_mode) ? "directory" : "file",
                     ", not a socket; give the path of the daemon's momentd.sock"));
  }
  return absl::OkStatus();
}

std::string DescriptorSocketPath(const std::string& socket_path) {
  const size_t slash = socket_path.rfind('/');
  if (slash == std::string::npos) {
    return kDescriptorSocketName;
  }
  return absl::StrCat(socket_path.substr(0, slash + 1), kDescriptorSocketName);
}

}  // namespace moment::client
