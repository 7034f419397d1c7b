#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "daemon/base/fd.h"
#include "daemon/rpc/peer.h"

namespace moment::rpc {

// A listening socket (which the caller keeps) and what becomes of its connections. `accepted` runs
// on the acceptor's thread and must not block.
struct Door {
  int listener = -1;
  std::string name;
  std::function<void(base::UniqueFd connection, session::Peer peer)> accepted;
};

// Accepts on all doors with one thread, and closes connections of peers that are not allowed.
class Acceptor {
 public:
  Acceptor(std::vector<Door> doors, AccessList access);
  ~Acceptor();  // stops accepting; what was handed over is not touched

 private:
  void Run();
  void Accept(const Door& door);

  const std::vector<Door> doors_;
  const AccessList access_;
  base::UniqueFd stop_;  // eventfd
  bool pause_ = false;   // out of descriptors: the next poll watches stop_ alone, for a while
  std::thread thread_;
};

}  // namespace moment::rpc
