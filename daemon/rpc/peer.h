#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/fd.h"
#include "daemon/session/peer.h"

namespace moment::rpc {

// Who is at the other end of a connected Unix socket, by the kernel's word.
absl::StatusOr<session::Peer> ReadPeer(int socket);

// Who may connect.
struct AccessList {
  std::vector<uid_t> uids;
  std::vector<gid_t> gids;

  bool Allows(const session::Peer& peer) const;
};

// The peers of the connections that were handed to gRPC, which names a connection "fd:<number>".
// An entry is replaced when the kernel gives its number out again. Thread-safe.
class PeerTable {
 public:
  void Add(int socket, session::Peer peer);
  // `name` as grpc::ServerContext::peer() gives it. NOT_FOUND for connections of other kinds.
  absl::StatusOr<session::Peer> Find(const std::string& name) const;

 private:
  mutable absl::Mutex mutex_;
  absl::flat_hash_map<int, session::Peer> peers_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moment::rpc
