#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/config/options.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "daemon/session/store_opener.h"
#include "daemon/state_lock.h"

namespace moment {

// The state directories of this process: made, probed, locked, each with its engine. The engines go
// before the locks: their rings hold the lock files until the last write is over.
class StateDirectories {
 public:
  // FAILED_PRECONDITION naming the holder of a directory that another daemon has;
  // INVALID_ARGUMENT for a file system that is refused.
  static absl::StatusOr<std::unique_ptr<StateDirectories>> Open(const config::Config& config,
                                                                io::FileSystem& files);

  const std::vector<session::StateDirectory>& directories() const { return directories_; }

 private:
  StateDirectories() = default;

  std::vector<StateLock> locks_;
  std::vector<std::unique_ptr<io::IoEngine>> engines_;
  std::vector<session::StateDirectory> directories_;
};

}  // namespace moment
