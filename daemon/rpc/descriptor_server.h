#pragma once

#include <chrono>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/fd.h"
#include "daemon/session/session_manager.h"
#include "proto/moment/v1/descriptors.h"

namespace moment::rpc {

// fd.sock: one request and one reply a connection, answered by its own thread. A connection that
// says nothing is closed after a while; it delays no other. Add comes from the acceptor's thread.
class DescriptorServer {
 public:
  explicit DescriptorServer(session::SessionManager& sessions);
  ~DescriptorServer();

  void Add(base::UniqueFd connection, session::Peer peer);

 private:
  struct Connection {
    base::UniqueFd fd;
    session::Peer peer;
    std::chrono::steady_clock::time_point closes;
  };
  struct Reply {
    v1::DescriptorReply wire = {};
    std::vector<base::UniqueFd> descriptors;
  };

  void Run();
  bool TakeIncoming();  // false: stop
  void Serve(const Connection& connection);
  Reply Answer(const v1::DescriptorRequest& request, std::vector<base::UniqueFd> descriptors,
               const session::Peer& peer);
  absl::Status Accept(const v1::DescriptorRequest& request, std::vector<base::UniqueFd> descriptors,
                      const session::Peer& peer, Reply& reply);
  absl::Status Offer(session::Session& session, const v1::DescriptorRequest& request,
                     std::vector<base::UniqueFd> descriptors, Reply& reply);

  session::SessionManager& sessions_;
  base::UniqueFd wake_;                  // eventfd
  std::vector<Connection> connections_;  // the thread's own
  absl::Mutex mutex_;
  std::vector<Connection> incoming_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace moment::rpc
