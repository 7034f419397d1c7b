#include "daemon/rpc/listener.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/base/errors.h"

namespace moment::rpc {
namespace {

constexpr absl::string_view kLockName = "momentd.lock";
constexpr std::array<absl::string_view, 6> kOurNames = {".",          "..",      "momentd.sock",
                                                        "admin.sock", "fd.sock", kLockName};

// Whether a directory holds nothing but what daemons make there.
bool IsOurs(const std::string& path) {
  DIR* directory = ::opendir(path.c_str());
  bool ours = directory != nullptr;
  while (ours) {
    const dirent* entry = ::readdir(directory);
    if (entry == nullptr) {
      break;
    }
    ours = std::find(kOurNames.begin(), kOurNames.end(), entry->d_name) != kOurNames.end();
  }
  if (directory != nullptr) {
    ::closedir(directory);
  }
  return ours;
}

absl::Status MakeParents(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    if (::mkdir(parent.c_str(), 0755) != 0 && errno != EEXIST) {
      return base::ErrnoStatus(errno, "make directory", parent);
    }
  }
  return absl::OkStatus();
}

absl::Status SetOwnership(const std::string& path, uint32_t mode, std::optional<gid_t> group) {
  if (group.has_value() && ::lchown(path.c_str(), static_cast<uid_t>(-1), *group) != 0) {
    return base::ErrnoStatus(errno, absl::StrCat("set group ", *group, " of"), path);
  }
  if (::chmod(path.c_str(), mode) != 0) {
    return base::ErrnoStatus(errno, "set permissions of", path);
  }
  return absl::OkStatus();
}

// Makes the directory, or brings one that is ours alone to the wanted mode and group.
absl::Status Prepare(const SocketDirectoryOptions& options) {
  MOMENT_RETURN_IF_ERROR(MakeParents(options.path));
  const bool made = ::mkdir(options.path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) {
    return base::ErrnoStatus(errno, "make socket directory", options.path);
  }
  struct stat info = {};
  if (::stat(options.path.c_str(), &info) != 0) {
    return base::ErrnoStatus(errno, "look at socket directory", options.path);
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket directory ", options.path, " is not a directory"));
  }
  if (made || (info.st_uid == ::geteuid() && IsOurs(options.path))) {
    return SetOwnership(options.path, options.mode, options.group);
  }
  if ((info.st_mode & S_IWOTH) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("socket directory ", options.path,
                     " may be written by everyone: give momentd a directory of its own"));
  }
  return absl::OkStatus();
}

std::string HolderOf(int lock) {
  char text[64] = {};
  const ssize_t length = ::pread(lock, text, sizeof(text) - 1, 0);
  const absl::string_view pid = absl::StripAsciiWhitespace(text);
  return length > 0 && !pid.empty() ? absl::StrCat("pid ", pid) : "another process";
}

bool IsListening(const sockaddr_un& address, int type) {
  const base::UniqueFd probe(::socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
             0 ||
         errno == EAGAIN || errno == EPROTOTYPE;
}

absl::Status RemoveStale(const std::string& path, const sockaddr_un& address, int type) {
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? absl::OkStatus() : base::ErrnoStatus(errno, "look at", path);
  }
  if (!S_ISSOCK(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " is there and is not a socket: remove it, or choose another socket_dir"));
  }
  if (IsListening(address, type)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is served by another process: stop it, or choose another socket_dir"));
  }
  if (::unlink(path.c_str()) != 0) {
    return base::ErrnoStatus(errno, "remove stale socket", path);
  }
  return absl::OkStatus();
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  if (path.size() > kMaxSocketPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " has ", path.size(),
                                                   " bytes; the longest is ", kMaxSocketPathBytes,
                                                   ": choose a shorter socket_dir"));
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

}  // namespace

absl::StatusOr<SocketDirectory> SocketDirectory::Acquire(const SocketDirectoryOptions& options) {
  // The longest name decides, before anything is made.
  MOMENT_RETURN_IF_ERROR(AddressOf(absl::StrCat(options.path, "/momentd.sock")).status());
  MOMENT_RETURN_IF_ERROR(Prepare(options));
  const std::string path = absl::StrCat(options.path, "/", kLockName);
  base::UniqueFd lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!lock.valid()) {
    return base::ErrnoStatus(errno, "open socket lock", path);
  }
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return absl::FailedPreconditionError(
          absl::StrCat("socket directory ", options.path, " is held by ", HolderOf(lock.get())));
    }
    return base::ErrnoStatus(errno, "lock", path);
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(lock.get(), 0) != 0 ||
      ::pwrite(lock.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return base::ErrnoStatus(errno, "write", path);
  }
  return SocketDirectory(options.path, std::move(lock));
}

absl::StatusOr<UnixListener> UnixListener::Bind(const SocketDirectory& directory,
                                                const SocketOptions& options) {
  const std::string path = absl::StrCat(directory.path(), "/", options.name);
  MOMENT_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  MOMENT_RETURN_IF_ERROR(RemoveStale(path, address, options.type));
  base::UniqueFd fd(::socket(AF_UNIX, options.type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) {
    return base::ErrnoStatus(errno, "make socket", path);
  }
  // The mode of the unbound socket bounds that of the name until it is set: never wider than asked.
  ::fchmod(fd.get(), options.mode & 0700);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return base::ErrnoStatus(errno, "bind socket", path);
  }
  UnixListener listener(path, std::move(fd));
  struct stat info = {};
  if (::lstat(path.c_str(), &info) != 0) {
    return base::ErrnoStatus(errno, "look at", path);
  }
  listener.inode_ = info.st_ino;
  MOMENT_RETURN_IF_ERROR(SetOwnership(path, options.mode, options.group));
  if (::listen(listener.fd(), SOMAXCONN) != 0) {
    return base::ErrnoStatus(errno, "listen on", path);
  }
  return listener;
}

UnixListener::~UnixListener() {
  struct stat info = {};
  if (fd_.valid() && ::lstat(path_.c_str(), &info) == 0 && info.st_ino == inode_) {
    ::unlink(path_.c_str());
  }
}

}  // namespace moment::rpc
