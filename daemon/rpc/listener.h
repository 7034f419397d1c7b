#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/base/fd.h"

namespace moment::rpc {

// Longest path of a Unix socket; the kernel's field has 108 bytes with the NUL.
inline constexpr size_t kMaxSocketPathBytes = 107;

struct SocketDirectoryOptions {
  std::string path;
  uint32_t mode = 0750;
  std::optional<gid_t> group;
};

// The directory that the sockets are in, made if it is missing, with its lock (`momentd.lock`) held
// as long as this lives. Whoever holds the lock may remove what a dead daemon left there.
class SocketDirectory {
 public:
  // FAILED_PRECONDITION naming the holder if another daemon has it; INVALID_ARGUMENT if everyone
  // may write there.
  static absl::StatusOr<SocketDirectory> Acquire(const SocketDirectoryOptions& options);

  const std::string& path() const { return path_; }

 private:
  SocketDirectory(std::string path, base::UniqueFd lock)
      : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  base::UniqueFd lock_;
};

struct SocketOptions {
  std::string name;  // within the directory
  int type = 0;      // SOCK_STREAM or SOCK_SEQPACKET
  uint32_t mode = 0660;
  std::optional<gid_t> group;
};

// A listening Unix socket with explicit mode and group, whatever the umask is. Its destructor
// removes the name if it still is this socket's.
class UnixListener {
 public:
  // Removes a stale socket of this name; FAILED_PRECONDITION if something alive listens there,
  // INVALID_ARGUMENT for a path that is too long or holds something other than a socket.
  static absl::StatusOr<UnixListener> Bind(const SocketDirectory& directory,
                                           const SocketOptions& options);
  UnixListener(UnixListener&&) = default;
  UnixListener& operator=(UnixListener&&) = delete;
  ~UnixListener();

  int fd() const { return fd_.get(); }
  const std::string& path() const { return path_; }

 private:
  UnixListener(std::string path, base::UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  base::UniqueFd fd_;
  uint64_t inode_ = 0;  // of the name
};

}  // namespace moment::rpc
