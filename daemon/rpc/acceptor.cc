#include "daemon/rpc/acceptor.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "daemon/base/log_text.h"

namespace moment::rpc {
namespace {

constexpr int kPauseMs = 200;

}  // namespace

Acceptor::Acceptor(std::vector<Door> doors, AccessList access)
    : doors_(std::move(doors)),
      access_(std::move(access)),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      thread_([this] { Run(); }) {}

Acceptor::~Acceptor() {
  const uint64_t one = 1;
  if (::write(stop_.get(), &one, sizeof(one)) != sizeof(one)) {
    spdlog::error("event=acceptor_stop error={}", base::Quoted(std::strerror(errno)));
  }
  thread_.join();
}

void Acceptor::Run() {
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
  for (const Door& door : doors_) {
    polled.push_back({door.listener, POLLIN, 0});
  }
  for (;;) {
    const bool paused = std::exchange(pause_, false);
    const int ready = ::poll(polled.data(), paused ? 1 : polled.size(), paused ? kPauseMs : -1);
    if (ready < 0 && errno != EINTR) {
      spdlog::error("event=accept_poll error={}", base::Quoted(std::strerror(errno)));
      return;
    }
    if (ready <= 0 || paused) {
      if (ready > 0) {
        return;
      }
      continue;
    }
    if (polled[0].revents != 0) {
      return;
    }
    for (size_t i = 0; i < doors_.size(); ++i) {
      if (polled[i + 1].revents != 0) {
        Accept(doors_[i]);
      }
    }
  }
}

void Acceptor::Accept(const Door& door) {
  base::UniqueFd connection(
      ::accept4(door.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      spdlog::warn("event=accept door={} error={}", door.name, base::Quoted(std::strerror(errno)));
      pause_ = true;
    }
    return;
  }
  absl::StatusOr<session::Peer> peer = ReadPeer(connection.get());
  if (!peer.ok()) {
    spdlog::warn("event=refused door={} error={}", door.name,
                 base::Quoted(peer.status().message()));
    return;
  }
  if (!access_.Allows(*peer)) {
    spdlog::warn("event=refused door={} pid={} uid={} reason=\"not in the allow list\"", door.name,
                 peer->pid, peer->uid);
    return;
  }
  door.accepted(std::move(connection), *std::move(peer));
}

}  // namespace moment::rpc
