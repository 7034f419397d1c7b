#include "daemon/io/posix_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::io {
namespace {

int OpenFlags(OpenMode mode) {
  // Non-blocking until the kind is known: opening a FIFO would wait for its other end.
  constexpr int kAlways = O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  switch (mode) {
    case OpenMode::kRead:
      return kAlways | O_RDONLY;
    case OpenMode::kReadWrite:
      return kAlways | O_RDWR;
    case OpenMode::kCreate:
      break;
  }
  return kAlways | O_RDWR | O_CREAT | O_EXCL;
}

absl::Status CheckRegular(int fd, const std::string& path) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) {
    return base::ErrnoStatus(errno, "stat", path);
  }
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat("open ", path, ": not a regular file"));
  }
  return absl::OkStatus();
}

absl::Status SetFlags(int fd, const std::string& path, bool direct) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, (flags & ~O_NONBLOCK) | (direct ? O_DIRECT : 0)) != 0) {
    return base::ErrnoStatus(errno, direct ? "open for direct I/O" : "open", path);
  }
  return absl::OkStatus();
}

absl::Status Prepare(int fd, const std::string& path, const OpenOptions& options) {
  MOMENT_RETURN_IF_ERROR(CheckRegular(fd, path));
  if (options.mode == OpenMode::kCreate && ::fchmod(fd, options.permissions) != 0) {
    return base::ErrnoStatus(errno, "set the permissions of", path);
  }
  return SetFlags(fd, path, options.direct);
}

// Reserves blocks for an empty file; an errno.
int Reserve(int fd, uint64_t length) {
  struct statvfs space {};
  if (::fstatvfs(fd, &space) == 0 && length / space.f_frsize > space.f_bfree) {
    return ENOSPC;  // asked first: ext4 would fill the disk for everyone before it fails
  }
  int result = 0;
  do {
    result = length == 0 ? 0 : ::fallocate(fd, 0, 0, static_cast<off_t>(length));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<std::unique_ptr<File>> PosixFile::Open(const std::string& path,
                                                      const OpenOptions& options) {
  base::UniqueFd fd(::open(path.c_str(), OpenFlags(options.mode), options.permissions));
  if (!fd.valid()) {
    const char* what = options.mode == OpenMode::kCreate ? "create" : "open";
    return base::ErrnoStatus(errno, what, path);
  }
  if (absl::Status status = Prepare(fd.get(), path, options); !status.ok()) {
    if (options.mode == OpenMode::kCreate) {
      ::unlink(path.c_str());
    }
    return status;
  }
  return std::unique_ptr<File>(new PosixFile(path, options.direct, std::move(fd)));
}

absl::StatusOr<uint64_t> PosixFile::Size() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) {
    return base::ErrnoStatus(errno, "stat", path());
  }
  return static_cast<uint64_t>(status.st_size);
}

absl::Status PosixFile::Allocate(uint64_t length) {
  // Emptied first: of a file that has bytes, fallocate keeps them.
  if (::ftruncate(fd_.get(), 0) != 0) {
    return base::ErrnoStatus(errno, "empty", path());
  }
  const int error = Reserve(fd_.get(), length);
  if (error == 0) {
    return absl::OkStatus();
  }
  // What was reserved before the room ended goes back. The first error is the one to tell.
  [[maybe_unused]] const int emptied = ::ftruncate(fd_.get(), 0);
  return base::ErrnoStatus(error, absl::StrCat("reserve ", length, " bytes for"), path());
}

}  // namespace moment::io
