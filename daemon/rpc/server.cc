#include "daemon/rpc/server.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace moment::rpc {
namespace {

// A 100,000 tensor Open, or a step with a blob of 16 MiB, must fit.
constexpr int kMaxMessageBytes = 64 << 20;

void SetOptions(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  // Clients ping an idle connection to notice a stopped daemon; that is no abuse.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  // gRPC would share a TCP port with whoever else listens there.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Create(const std::vector<grpc::Service*>& services,
                                                       const std::string& listen) {
  std::unique_ptr<Server> server(new Server());
  grpc::ServerBuilder builder;
  SetOptions(builder);
  for (grpc::Service* service : services) {
    builder.RegisterService(service);
  }
  if (!listen.empty()) {
    builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &server->port_);
  }
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || (!listen.empty() && server->port_ == 0)) {
    return absl::FailedPreconditionError(
        listen.empty() ? std::string("gRPC server did not start")
                       : absl::StrCat("cannot listen on ", listen, ": is it in use?"));
  }
  return server;
}

Server::~Server() { Stop(std::chrono::milliseconds(0)); }

void Server::Serve(base::UniqueFd connection) {
  grpc::AddInsecureChannelFromFd(server_.get(), connection.Release());
}

void Server::Stop(std::chrono::milliseconds grace) {
  if (server_ != nullptr) {
    server_->Shutdown(std::chrono::system_clock::now() + grace);
    server_->Wait();
    server_.reset();
  }
}

}  // namespace moment::rpc
