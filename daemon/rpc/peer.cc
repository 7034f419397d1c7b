#include "daemon/rpc/peer.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "daemon/base/errors.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace moment::rpc {
namespace {

std::vector<gid_t> PeerGroups(int socket) {
  std::vector<gid_t> groups(64);
  for (;;) {
    socklen_t length = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &length) == 0) {
      groups.resize(length / sizeof(gid_t));
      return groups;
    }
    if (errno != ERANGE) {
      return {};
    }
    groups.resize(length / sizeof(gid_t));
  }
}

// By the socket where the kernel can (Linux 6.5; it then works across PID namespaces), else by the
// number, which is 0 for a process outside our namespace.
base::UniqueFd PeerPidfd(int socket, pid_t pid) {
  int pidfd = -1;
  socklen_t length = sizeof(pidfd);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
    return base::UniqueFd(pidfd);
  }
  return base::UniqueFd(pid > 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1);
}

template <typename T>
bool Contains(const std::vector<T>& list, T value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

absl::StatusOr<session::Peer> ReadPeer(int socket) {
  ucred credentials = {};
  socklen_t length = sizeof(credentials);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return base::ErrnoStatus(errno, "ask for credentials of", "a connection");
  }
  session::Peer peer;
  peer.pid = credentials.pid;
  peer.uid = credentials.uid;
  peer.groups = PeerGroups(socket);
  peer.groups.push_back(credentials.gid);
  base::UniqueFd pidfd = PeerPidfd(socket, credentials.pid);
  if (pidfd.valid()) {
    peer.pidfd = std::make_shared<base::UniqueFd>(std::move(pidfd));
  }
  return peer;
}

bool AccessList::Allows(const session::Peer& peer) const {
  return Contains(uids, peer.uid) ||
         std::any_of(peer.groups.begin(), peer.groups.end(),
                     [this](gid_t group) { return Contains(gids, group); });
}

void PeerTable::Add(int socket, session::Peer peer) {
  absl::MutexLock lock(&mutex_);
  peers_.insert_or_assign(socket, std::move(peer));
}

absl::StatusOr<session::Peer> PeerTable::Find(const std::string& name) const {
  absl::string_view number = name;
  int socket = -1;
  if (absl::ConsumePrefix(&number, "fd:") && absl::SimpleAtoi(number, &socket)) {
    absl::MutexLock lock(&mutex_);
    if (const auto found = peers_.find(socket); found != peers_.end()) {
      return found->second;
    }
  }
  return absl::NotFoundError(absl::StrCat("connection ", name, " has no credentials"));
}

}  // namespace moment::rpc
