#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/fd.h"
#include "daemon/base/memory.h"
#include "daemon/io/file_system.h"
#include "daemon/io/file_system_type.h"

namespace moment::io {
namespace {

constexpr uint64_t kProbeBytes = 2 * base::kIoAlignment;

// A file without a name, where the file system has such; else one whose name is gone at once.
absl::StatusOr<base::UniqueFd> OpenNameless(const std::string& directory) {
  base::UniqueFd fd(::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (fd.valid()) {
    return fd;
  }
  std::string path = absl::StrCat(directory, "/.momentd-probe-XXXXXX");
  fd.Reset(::mkostemp(path.data(), O_CLOEXEC));
  if (!fd.valid()) {
    return base::ErrnoStatus(errno, "create a file in", directory);
  }
  ::unlink(path.c_str());
  return fd;
}

std::string Refusal(const char* what, int error) {
  return absl::StrCat(what, ": ", std::generic_category().message(error));
}

// Empty when a direct write came back as it was written; else why not.
absl::StatusOr<std::string> TryDirect(int fd, const DirectoryProbe& probe) {
  if (::fcntl(fd, F_SETFL, O_DIRECT) != 0) {
    return Refusal("the file system refuses O_DIRECT", errno);
  }
  MOMENT_ASSIGN_OR_RETURN(base::AlignedBuffer written, base::AlignedBuffer::Allocate(kProbeBytes));
  MOMENT_ASSIGN_OR_RETURN(base::AlignedBuffer read, base::AlignedBuffer::Allocate(kProbeBytes));
  std::memset(written.data(), 0x5A, kProbeBytes);
  const ssize_t wrote = ::pwrite(fd, written.data(), kProbeBytes, 0);
  if (wrote < 0 && (errno == ENOSPC || errno == EDQUOT) && probe.is_known && !probe.is_volatile) {
    // A full disk must not keep a daemon from serving the stores it has.
    return std::string();
  }
  if (wrote != static_cast<ssize_t>(kProbeBytes)) {
    return wrote < 0 ? Refusal("an aligned direct write failed", errno)
                     : std::string("an aligned direct write was cut short");
  }
  const ssize_t got = ::pread(fd, read.data(), kProbeBytes, 0);
  if (got != static_cast<ssize_t>(kProbeBytes)) {
    return got < 0 ? Refusal("an aligned direct read failed", errno)
                   : std::string("an aligned direct read was cut short");
  }
  return std::memcmp(read.data(), written.data(), kProbeBytes) == 0
             ? std::string()
             : std::string("a direct read returned other bytes than were written");
}

}  // namespace

absl::StatusOr<DirectoryProbe> ProbeDirectory(const std::string& path) {
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) {
    return base::ErrnoStatus(errno, "ask the file system of", path);
  }
  // f_type is signed and 32 bits wide on some systems.
  const FileSystemType type = ClassifyFileSystem(static_cast<uint32_t>(status.f_type));
  DirectoryProbe probe{type.name, type.is_volatile, type.is_network, type.is_known};
  MOMENT_ASSIGN_OR_RETURN(const base::UniqueFd file, OpenNameless(path));
  MOMENT_ASSIGN_OR_RETURN(probe.direct_io_reason, TryDirect(file.get(), probe));
  probe.direct_io = probe.direct_io_reason.empty();
  return probe;
}

}  // namespace moment::io
