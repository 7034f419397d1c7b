#include "daemon/rpc/health.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>

#include <atomic>

#include "daemon/rpc/peer.h"
#include "daemon/rpc/server.h"
#include "tests/support/catch.h"

namespace moment::rpc {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

// A server of the health service and a client at the two ends of one connection.
struct Pair {
  Pair() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    server = Server::Create({&service}, "").value();
    server->Serve(base::UniqueFd(ends[0]));
    stub = Health::NewStub(grpc::CreateInsecureChannelFromFd("health", ends[1]));
  }

  grpc::Status Check(const std::string& name, HealthCheckResponse& response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
    HealthCheckRequest request;
    request.set_service(name);
    return stub->Check(&context, request, &response);
  }

  std::shared_ptr<HealthBoard> board =
      std::make_shared<HealthBoard>(std::vector<std::string>{"", "readiness", "/data"});
  HealthService service{board};
  std::unique_ptr<Server> server;
  std::unique_ptr<Health::Stub> stub;
};

TEST_CASE("Health: Check answers what the board says, by service", "[rpc]") {
  Pair pair;
  pair.board->Set("readiness", true);
  HealthCheckResponse response;
  REQUIRE(pair.Check("readiness", response).ok());
  REQUIRE(response.status() == HealthCheckResponse::SERVING);
  REQUIRE(pair.Check("/data", response).ok());
  REQUIRE(response.status() == HealthCheckResponse::NOT_SERVING);
}

TEST_CASE("Health: Check of an unknown service is NOT_FOUND", "[rpc]") {
  Pair pair;
  HealthCheckResponse response;
  REQUIRE(pair.Check("nobody", response).error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("Health: Watch sends the status at once and each change", "[rpc]") {
  Pair pair;
  grpc::ClientContext context;
  HealthCheckRequest request;
  const auto stream = pair.stub->Watch(&context, request);
  HealthCheckResponse response;
  REQUIRE(stream->Read(&response));
  REQUIRE(response.status() == HealthCheckResponse::NOT_SERVING);
  pair.board->Set("", true);
  REQUIRE(stream->Read(&response));
  REQUIRE(response.status() == HealthCheckResponse::SERVING);
  pair.board->Set("readiness", true);  // another service: nothing is sent
  pair.board->Set("", false);
  REQUIRE(stream->Read(&response));
  REQUIRE(response.status() == HealthCheckResponse::NOT_SERVING);
  context.TryCancel();
  REQUIRE_FALSE(stream->Read(&response));
  REQUIRE(stream->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("Health: Watch of an unknown service stays open as SERVICE_UNKNOWN", "[rpc]") {
  Pair pair;
  grpc::ClientContext context;
  HealthCheckRequest request;
  request.set_service("nobody");
  const auto stream = pair.stub->Watch(&context, request);
  HealthCheckResponse response;
  REQUIRE(stream->Read(&response));
  REQUIRE(response.status() == HealthCheckResponse::SERVICE_UNKNOWN);
  context.TryCancel();
  REQUIRE(stream->Finish().error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("Health: a server with a watcher stops within its grace time", "[rpc]") {
  Pair pair;
  grpc::ClientContext context;
  HealthCheckRequest request;
  const auto stream = pair.stub->Watch(&context, request);
  HealthCheckResponse response;
  REQUIRE(stream->Read(&response));
  pair.server->Stop(std::chrono::milliseconds(50));
  REQUIRE_FALSE(stream->Read(&response));
  REQUIRE_FALSE(stream->Finish().ok());
}

TEST_CASE("Server: a busy TCP address is refused naming it", "[rpc]") {
  const auto board = std::make_shared<HealthBoard>(std::vector<std::string>{""});
  HealthService service(board);
  const auto first = Server::Create({&service}, "127.0.0.1:0").value();
  REQUIRE(first->port() != 0);
}

TEST_CASE("Peer: the kernel's word about a connection, and who is let in by it", "[rpc]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const base::UniqueFd mine(ends[0]);
  const base::UniqueFd other(ends[1]);
  const session::Peer peer = ReadPeer(mine.get()).value();
  REQUIRE(peer.pid == ::getpid());
  REQUIRE(peer.uid == ::getuid());
  REQUIRE(peer.pidfd != nullptr);
  REQUIRE(AccessList{{::getuid()}, {}}.Allows(peer));
  REQUIRE(AccessList{{}, {::getgid()}}.Allows(peer));
  REQUIRE_FALSE(AccessList{{::getuid() + 1}, {::getgid() + 1}}.Allows(peer));
}

TEST_CASE("Peer: the table knows connections by the names gRPC gives them", "[rpc]") {
  PeerTable table;
  session::Peer peer;
  peer.pid = 42;
  table.Add(7, peer);
  REQUIRE(table.Find("fd:7").value().pid == 42);
  REQUIRE_FALSE(table.Find("fd:8").ok());
  REQUIRE_FALSE(table.Find("unix:").ok());
}

}  // namespace
}  // namespace moment::rpc
