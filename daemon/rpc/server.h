#pragma once

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/base/fd.h"

namespace moment::rpc {

// A gRPC server that is given its connections, or listens on a TCP address by itself. Thread-safe.
class Server {
 public:
  // The services outlive the server. `listen`: "" for none.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const std::vector<grpc::Service*>& services,
                                                        const std::string& listen);
  ~Server();  // Stop(0) if that was not done

  void Serve(base::UniqueFd connection);
  // The port of the TCP address (which may have asked for 0).
  int port() const { return port_; }
  // Calls that are still open after `grace` are cancelled.
  void Stop(std::chrono::milliseconds grace);

 private:
  Server() = default;

  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

}  // namespace moment::rpc
