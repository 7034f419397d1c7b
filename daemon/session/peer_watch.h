#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/fd.h"

namespace moment::session {

// Calls back when a process ends, by its pidfd: one thread for all of them. Thread-safe.
class PeerWatch {
 public:
  static absl::StatusOr<std::unique_ptr<PeerWatch>> Create();
  ~PeerWatch();

  // `gone` runs once, on the watch's thread, unless Remove comes first; it must not block.
  uint64_t Add(std::shared_ptr<base::UniqueFd> pidfd, std::function<void()> gone);
  // `gone` may be running when this returns.
  void Remove(uint64_t watch);

 private:
  struct Entry {
    std::shared_ptr<base::UniqueFd> pidfd;  // kept open as long as it is polled
    std::function<void()> gone;
  };

  PeerWatch(base::UniqueFd poll, base::UniqueFd stop);
  void Run();
  std::function<void()> Take(uint64_t watch);

  base::UniqueFd poll_;  // epoll; the event's data is the watch, 0 for stop_
  base::UniqueFd stop_;
  absl::Mutex mutex_;
  absl::flat_hash_map<uint64_t, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_watch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_;
};

// Whether the process of a pidfd has ended.
bool HasEnded(const base::UniqueFd& pidfd);

}  // namespace moment::session
