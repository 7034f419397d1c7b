#include "daemon/rpc/health.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
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
  const std::string address = absl::StrCat("127.0.0.1:", first->port());
  const absl::Status second = Server::Create({&service}, address).status();
  REQUIRE(second.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(absl::StrContains(second.message(), address));
}

}  // namespace
}  // namespace moment::rpc
