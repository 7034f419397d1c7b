#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/fd.h"
#include "daemon/io/file_system.h"
#include "daemon/io/posix_file.h"

namespace moment::io {
namespace {

absl::Status StatusOf(int result, absl::string_view what, absl::string_view object) {
  return result == 0 ? absl::OkStatus() : base::ErrnoStatus(errno, what, object);
}

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

class PosixFileSystem : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path,
                                             const OpenOptions& options) override {
    return PosixFile::Open(path, options);
  }

  absl::Status CreateDirectory(const std::string& path, uint32_t permissions) override {
    MOMENT_RETURN_IF_ERROR(StatusOf(::mkdir(path.c_str(), permissions), "create directory", path));
    // mkdir subtracts the umask.
    return SetPermissions(path, permissions);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    return StatusOf(::rename(from.c_str(), to.c_str()), "rename", absl::StrCat(from, " to ", to));
  }

  absl::Status Link(const std::string& from, const std::string& to) override {
    return StatusOf(::link(from.c_str(), to.c_str()), "link", absl::StrCat(from, " as ", to));
  }

  absl::Status Unlink(const std::string& path) override {
    return StatusOf(::unlink(path.c_str()), "unlink", path);
  }

  absl::Status RemoveDirectory(const std::string& path) override {
    return StatusOf(::rmdir(path.c_str()), "remove directory", path);
  }

  absl::Status SetPermissions(const std::string& path, uint32_t permissions) override {
    return StatusOf(::chmod(path.c_str(), permissions), "set the permissions of", path);
  }

  absl::Status SyncDirectory(const std::string& path) override {
    base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.valid()) {
      return base::ErrnoStatus(errno, "open directory", path);
    }
    return StatusOf(::fsync(fd.get()), "sync directory", path);
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    std::unique_ptr<DIR, CloseDirectory> directory(::opendir(path.c_str()));
    if (directory == nullptr) {
      return base::ErrnoStatus(errno, "list", path);
    }
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        names.push_back(name);
      }
    }
    if (errno != 0) {
      return base::ErrnoStatus(errno, "list", path);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<FileInfo> Stat(const std::string& path) override {
    struct stat status {};
    MOMENT_RETURN_IF_ERROR(StatusOf(::stat(path.c_str(), &status), "stat", path));
    constexpr uint64_t kStatBlockBytes = 512;  // by POSIX, whatever the file system's block
    FileInfo info;
    info.size_bytes = static_cast<uint64_t>(status.st_size);
    info.allocated_bytes = static_cast<uint64_t>(status.st_blocks) * kStatBlockBytes;
    info.links = status.st_nlink;
    info.inode = status.st_ino;
    info.permissions = status.st_mode & 07777;
    info.directory = S_ISDIR(status.st_mode);
    return info;
  }

  absl::StatusOr<Space> FreeSpace(const std::string& path) override {
    struct statvfs status {};
    MOMENT_RETURN_IF_ERROR(StatusOf(::statvfs(path.c_str(), &status), "ask the space of", path));
    return Space{status.f_bavail * status.f_frsize, status.f_blocks * status.f_frsize};
  }
};

}  // namespace

std::unique_ptr<FileSystem> CreatePosixFileSystem() { return std::make_unique<PosixFileSystem>(); }

}  // namespace moment::io
