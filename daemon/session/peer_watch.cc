#include "daemon/session/peer_watch.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"

namespace moment::session {
namespace {

bool AddToPoll(int poll, int fd, uint64_t watch) {
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.u64 = watch;
  return ::epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event) == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PeerWatch>> PeerWatch::Create() {
  base::UniqueFd poll(::epoll_create1(EPOLL_CLOEXEC));
  base::UniqueFd stop(::eventfd(0, EFD_CLOEXEC));
  if (!poll.valid() || !stop.valid() || !AddToPoll(poll.get(), stop.get(), 0)) {
    return base::ErrnoStatus(errno, "watch for the end of", "trainer processes");
  }
  return std::unique_ptr<PeerWatch>(new PeerWatch(std::move(poll), std::move(stop)));
}

PeerWatch::PeerWatch(base::UniqueFd poll, base::UniqueFd stop)
    : poll_(std::move(poll)), stop_(std::move(stop)), thread_([this] { Run(); }) {}

PeerWatch::~PeerWatch() {
  const uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof(one)) != sizeof(one)) {
    spdlog::error("event=peer_watch_stop error={}", base::Quoted(std::strerror(errno)));
  }
  thread_.join();
}

uint64_t PeerWatch::Add(std::shared_ptr<base::UniqueFd> pidfd, std::function<void()> gone) {
  absl::MutexLock lock(&mutex_);
  const uint64_t watch = ++last_watch_;
  // Each watch polls its own duplicate: one process can hold several sessions.
  auto own = std::make_shared<base::UniqueFd>(::dup(pidfd->get()));
  if (!AddToPoll(poll_.get(), own->get(), watch)) {
    spdlog::warn("event=peer_watch error={} effect=\"the lease alone tells its end\"",
                 base::Quoted(std::strerror(errno)));
  }
  entries_[watch] = {std::move(own), std::move(gone)};
  return watch;
}

void PeerWatch::Remove(uint64_t watch) { Take(watch); }

std::function<void()> PeerWatch::Take(uint64_t watch) {
  absl::MutexLock lock(&mutex_);
  const auto found = entries_.find(watch);
  if (found == entries_.end()) {
    return nullptr;
  }
  ::epoll_ctl(poll_.get(), EPOLL_CTL_DEL, found->second.pidfd->get(), nullptr);
  std::function<void()> gone = std::move(found->second.gone);
  entries_.erase(found);
  return gone;
}

void PeerWatch::Run() {
  std::array<epoll_event, 16> events;
  for (;;) {
    const int count = ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), -1);
    if (count < 0 && errno != EINTR) {
      spdlog::error("event=peer_watch error={}", base::Quoted(std::strerror(errno)));
      return;
    }
    for (int i = 0; i < count; ++i) {
      const uint64_t watch = events[static_cast<size_t>(i)].data.u64;
      if (watch == 0) {
        return;
      }
      if (const std::function<void()> gone = Take(watch)) {
        gone();
      }
    }
  }
}

bool HasEnded(const base::UniqueFd& pidfd) {
  pollfd polled = {pidfd.get(), POLLIN, 0};
  return ::poll(&polled, 1, 0) > 0;
}

}  // namespace moment::session
