#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/io/file_system.h"
#include "daemon/rpc/health.h"
#include "daemon/service/status_report.h"
#include "daemon/session/store_opener.h"

namespace moment {

// Below this a state directory's health says "space". Steps go on there: they allocate nothing.
inline constexpr uint64_t kFullBelowBytes = uint64_t{64} << 20;

// Keeps the health of the state directories and the board's services up to date. Two threads: one
// reads the engines' atomics alone, so that a stalled disk cannot stall it; the other asks for free
// space and may block.
class HealthWatch {
 public:
  // All outlive the watch. `health` as `directories`.
  HealthWatch(const std::vector<session::StateDirectory>& directories,
              const std::vector<std::unique_ptr<service::DirectoryHealth>>& health,
              io::FileSystem& files, rpc::HealthBoard& board,
              std::chrono::milliseconds stall_after);
  ~HealthWatch();

  // From here on the daemon and its readiness are NOT_SERVING.
  void Drain();

 private:
  void WatchStalls();
  void WatchSpace();
  void LookForStalls();
  void LookAtSpace();
  // Waits for `period`; true if the watch is to end.
  bool Pause(std::chrono::milliseconds period);

  const std::vector<session::StateDirectory>& directories_;
  const std::vector<std::unique_ptr<service::DirectoryHealth>>& health_;
  io::FileSystem& files_;
  rpc::HealthBoard& board_;
  const std::chrono::milliseconds stall_after_;
  absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread stalls_;
  std::thread space_;
};

}  // namespace moment
