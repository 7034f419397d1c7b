#include "daemon/health_watch.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "absl/time/time.h"
#include "daemon/base/log_text.h"

namespace moment {
namespace {

constexpr std::chrono::milliseconds kLongestPeriod{1000};
constexpr std::chrono::milliseconds kSpacePeriod{2000};

}  // namespace

HealthWatch::HealthWatch(const std::vector<session::StateDirectory>& directories,
                         const std::vector<std::unique_ptr<service::DirectoryHealth>>& health,
                         io::FileSystem& files, rpc::HealthBoard& board,
                         std::chrono::milliseconds stall_after)
    : directories_(directories),
      health_(health),
      files_(files),
      board_(board),
      stall_after_(stall_after) {
  LookAtSpace();
  LookForStalls();
  stalls_ = std::thread([this] { WatchStalls(); });
  space_ = std::thread([this] { WatchSpace(); });
}

HealthWatch::~HealthWatch() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  stalls_.join();
  space_.join();
}

void HealthWatch::Drain() {
  {
    absl::MutexLock lock(&mutex_);
    draining_ = true;
  }
  LookForStalls();
}

bool HealthWatch::Pause(std::chrono::milliseconds period) {
  absl::MutexLock lock(&mutex_);
  return mutex_.AwaitWithTimeout(absl::Condition(&stopping_), absl::FromChrono(period));
}

void HealthWatch::WatchStalls() {
  const std::chrono::milliseconds period =
      std::clamp(stall_after_ / 4, std::chrono::milliseconds(1), kLongestPeriod);
  while (!Pause(period)) {
    LookForStalls();
  }
}

void HealthWatch::LookForStalls() {
  bool ready = true;
  for (size_t i = 0; i < directories_.size(); ++i) {
    const std::chrono::nanoseconds oldest(directories_[i].engine->OldestTransferNs());
    const bool stalled = oldest > stall_after_;
    if (health_[i]->stalled.exchange(stalled) != stalled) {
      spdlog::log(stalled ? spdlog::level::err : spdlog::level::info,
                  "event=device_{} directory={} oldest_io_seconds={}",
                  stalled ? "stalled" : "recovered", base::Quoted(directories_[i].path),
                  std::chrono::duration<double>(oldest).count());
    }
    board_.Set(directories_[i].path, !stalled);
    ready = ready && !stalled;
  }
  absl::MutexLock lock(&mutex_);
  board_.Set("liveness", true);
  board_.Set("", !draining_);
  board_.Set("readiness", ready && !draining_);
}

void HealthWatch::WatchSpace() {
  while (!Pause(kSpacePeriod)) {
    LookAtSpace();
  }
}

void HealthWatch::LookAtSpace() {
  for (size_t i = 0; i < directories_.size(); ++i) {
    const absl::StatusOr<io::Space> space = files_.FreeSpace(directories_[i].path);
    if (!space.ok()) {
      continue;
    }
    health_[i]->free_bytes = space->free_bytes;
    health_[i]->total_bytes = space->total_bytes;
    const bool full = space->free_bytes < kFullBelowBytes;
    if (health_[i]->full.exchange(full) != full) {
      spdlog::log(full ? spdlog::level::warn : spdlog::level::info,
                  "event=space_{} directory={} free_bytes={}", full ? "short" : "recovered",
                  base::Quoted(directories_[i].path), space->free_bytes);
    }
  }
}

}  // namespace moment
