#include "daemon/rpc/descriptor_kind.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace moment::rpc {
namespace {

// Only a pidfd's fdinfo names a process; the link's text differs between kernels.
bool IsPidfd(int fd) {
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", fd));
  std::string line;
  while (std::getline(info, line)) {
    if (absl::StartsWith(line, "Pid:")) {
      return true;
    }
  }
  return false;
}

std::string LinkOf(int fd) {
  char text[PATH_MAX] = {};
  const ssize_t length =
      ::readlink(absl::StrCat("/proc/self/fd/", fd).c_str(), text, sizeof(text) - 1);
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : "?";
}

// What drivers make for an exported allocation: a DMA-BUF, or a descriptor of the driver's own. Its
// contents are the driver's to check, which alone ever uses it.
bool MayBeGpuMemory(const std::string& is) {
  for (const char* const begin : {"/dmabuf:", "a device (/dev/nvidia", "anon_inode:[nv",
                                  "anon_inode:nv", "anon_inode:dmabuf", "anon_inode:[dmabuf"}) {
    if (absl::StartsWith(is, begin)) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string DescribeDescriptor(int fd) {
  if (IsPidfd(fd)) {
    return "a pidfd";
  }
  struct stat info = {};
  if (::fstat(fd, &info) != 0) {
    return "no open descriptor";
  }
  if (S_ISREG(info.st_mode)) {
    return absl::StartsWith(LinkOf(fd), "/memfd:") ? "a memfd" : "a regular file";
  }
  if (S_ISDIR(info.st_mode)) {
    return "a directory";
  }
  if (S_ISSOCK(info.st_mode)) {
    return "a socket";
  }
  if (S_ISFIFO(info.st_mode)) {
    return "a pipe";
  }
  if (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode)) {
    return absl::StrCat("a device (", LinkOf(fd), ")");
  }
  return LinkOf(fd);
}

absl::Status CheckDescriptorKind(int fd, v1::DescriptorKind kind) {
  const std::string is = DescribeDescriptor(fd);
  switch (kind) {
    case v1::DESCRIPTOR_KIND_PIDFD:
      return is == "a pidfd" ? absl::OkStatus()
                             : absl::InvalidArgumentError(
                                   absl::StrCat("the descriptor is ", is, ", not a pidfd"));
    case v1::DESCRIPTOR_KIND_FILE:
      return is == "a regular file" ? absl::OkStatus()
                                    : absl::InvalidArgumentError(absl::StrCat(
                                          "the descriptor is ", is, ", not a regular file"));
    case v1::DESCRIPTOR_KIND_VMM:
      return MayBeGpuMemory(is) ? absl::OkStatus()
                                : absl::InvalidArgumentError(
                                      absl::StrCat("the descriptor is ", is, ", not GPU memory"));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("descriptor kind ", static_cast<uint32_t>(kind), " does not exist"));
  }
}

}  // namespace moment::rpc
