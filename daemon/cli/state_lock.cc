#include "daemon/cli/state_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "daemon/base/errors.h"
#include "daemon/store/names.h"

namespace moment::cli {
namespace {

constexpr uint64_t kMaxLockFileBytes = 4096;

std::string Content(int fd) {
  std::string text(kMaxLockFileBytes, '\0');
  const ssize_t length = ::pread(fd, text.data(), text.size(), 0);
  text.resize(length > 0 ? static_cast<size_t>(length) : 0);
  return text;
}

// First line the holder's pid, second line its socket directory.
void ParseHolder(const std::string& text, StateLock& lock) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (!absl::SimpleAtoi(lines[0], &lock.holder_pid)) {
    lock.holder_pid = 0;
  }
  if (lines.size() > 1) {
    lock.holder_socket_directory = lines[1];
  }
}

}  // namespace

absl::StatusOr<StateLock> TryLockShared(const std::string& state_directory) {
  const std::string path = store::Join(state_directory, store::kLockFileName);
  base::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) {
    return base::ErrnoStatus(errno, "open", path);
  }
  StateLock lock;
  if (::flock(fd.get(), LOCK_SH | LOCK_NB) == 0) {
    lock.shared = std::move(fd);
    return lock;
  }
  if (errno != EWOULDBLOCK) {
    return base::ErrnoStatus(errno, "lock", path);
  }
  ParseHolder(Content(fd.get()), lock);
  return lock;
}

}  // namespace moment::cli
