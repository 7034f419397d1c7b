#include "daemon/state_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"

namespace moment {
namespace {

using Clock = std::chrono::steady_clock;

constexpr long kRetryNs = 20'000'000;

absl::StatusOr<bool> TryLock(int fd, const std::string& path) {
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) {
    return true;
  }
  return errno == EWOULDBLOCK ? absl::StatusOr<bool>(false)
                              : base::ErrnoStatus(errno, "lock", path);
}

pid_t HolderOf(int fd) {
  char text[256] = {};
  const ssize_t length = ::pread(fd, text, sizeof(text) - 1, 0);
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  pid_t pid = 0;
  return length > 0 && absl::SimpleAtoi(lines[0], &pid) ? pid : 0;
}

// Whether the process is there and stays there for `patience`. One that was just killed takes a
// moment to end.
bool StaysAlive(pid_t pid, std::chrono::milliseconds patience) {
  const base::UniqueFd pidfd(pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1);
  if (!pidfd.valid()) {
    return false;
  }
  pollfd polled = {pidfd.get(), POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(patience.count())) == 0;
}

// flock has no timeout: tries again every few milliseconds, and gives way to a signal to stop.
absl::Status AwaitLock(int fd, const std::string& path, Clock::time_point give_up) {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  const timespec pause = {0, kRetryNs};
  while (Clock::now() < give_up) {
    MOMENT_ASSIGN_OR_RETURN(const bool locked, TryLock(fd, path));
    if (locked) {
      return absl::OkStatus();
    }
    if (::sigtimedwait(&stop, nullptr, &pause) > 0) {
      return absl::CancelledError(absl::StrCat("stopped while waiting for ", path));
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path,
                   " is still locked, by a reader, a process of another PID namespace, or "
                   "writes that do not end"));
}

}  // namespace

absl::StatusOr<StateLock> StateLock::Acquire(const StateLockOptions& options) {
  const std::string path = absl::StrCat(options.state_directory, "/LOCK");
  base::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!fd.valid()) {
    return base::ErrnoStatus(errno, "open", path);
  }
  MOMENT_ASSIGN_OR_RETURN(const bool locked, TryLock(fd.get(), path));
  if (!locked) {
    const pid_t holder = HolderOf(fd.get());
    if (StaysAlive(holder, options.patience)) {
      return absl::FailedPreconditionError(absl::StrCat("state directory ", options.state_directory,
                                                        " is held by process ", holder));
    }
    spdlog::info("event=lock_wait path={} holder={} reason={}", base::Quoted(path), holder,
                 base::Quoted("the holder is gone; its last writes are landing"));
    MOMENT_RETURN_IF_ERROR(AwaitLock(fd.get(), path, Clock::now() + options.drain));
  }
  const std::string content = absl::StrCat(::getpid(), "\n", options.socket_directory, "\n");
  if (::ftruncate(fd.get(), 0) != 0 || ::pwrite(fd.get(), content.data(), content.size(), 0) !=
                                           static_cast<ssize_t>(content.size())) {
    return base::ErrnoStatus(errno, "write", path);
  }
  return StateLock(std::move(fd));
}

StateLock::~StateLock() {
  if (fd_.valid() && ::ftruncate(fd_.get(), 0) != 0) {
    spdlog::warn("event=lock_release error={}",
                 base::Quoted(std::generic_category().message(errno)));
  }
}

}  // namespace moment
