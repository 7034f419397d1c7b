#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "daemon/base/fd.h"

namespace moment {

struct StateLockOptions {
  std::string state_directory;
  std::string socket_directory;  // written into the lock, for readers that look for its holder
  // A holder that still lives after this is a second daemon; one that is being killed is gone.
  std::chrono::milliseconds patience{2000};
  // How long a dead holder's last writes may take.
  std::chrono::milliseconds drain{120000};
};

// The lock of a state directory: flock on its LOCK file, held as long as this lives, and by every
// I/O ring the descriptor is registered in. LOCK holds two lines: the holder's pid and its socket
// directory.
class StateLock {
 public:
  // FAILED_PRECONDITION naming the holder if it lives. Waits for the last writes of one that died.
  // CANCELLED if SIGTERM or SIGINT (blocked by the caller) arrives meanwhile.
  static absl::StatusOr<StateLock> Acquire(const StateLockOptions& options);
  StateLock(StateLock&&) = default;
  StateLock& operator=(StateLock&&) = delete;
  ~StateLock();  // empties LOCK

  int fd() const { return fd_.get(); }

 private:
  explicit StateLock(base::UniqueFd fd) : fd_(std::move(fd)) {}

  base::UniqueFd fd_;
};

}  // namespace moment
