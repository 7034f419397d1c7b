// The life of the real program: start, doors, conflicts, signals, exit codes.
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_client.h"
#include "tests/support/catch.h"

namespace moment::e2e {
namespace {

using grpc::health::v1::HealthCheckResponse;

uint32_t ModeOf(const std::string& path) {
  struct stat info = {};
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

TEST_CASE("momentd: SIGTERM ends it with 0 and its sockets are gone", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  const Ended ended = daemon.Stop();
  INFO(ended.output);
  REQUIRE(ended.code == 0);
  REQUIRE_FALSE(std::filesystem::exists(daemon.socket()));
  REQUIRE_FALSE(std::filesystem::exists(daemon.socket("admin.sock")));
  REQUIRE_FALSE(std::filesystem::exists(daemon.socket("fd.sock")));
}

TEST_CASE("momentd: health answers at both sockets, for every service", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  for (const std::string socket : {"momentd.sock", "admin.sock"}) {
    for (const std::string& service :
         {std::string(), std::string("liveness"), std::string("readiness"), place / "state"}) {
      INFO(socket << " " << service);
      REQUIRE(Health("unix:" + daemon.socket(socket), service) == HealthCheckResponse::SERVING);
    }
  }
}

TEST_CASE("momentd: health answers at a TCP address where asked for, and nothing else does",
          "[e2e]") {
  const Place place;
  DaemonOptions options;
  options.flags = {"--health-listen", "127.0.0.1:0"};
  Daemon daemon(place, options);
  const std::string log = daemon.process().Output();
  const size_t port = log.find("port=", log.find("event=health_listen"));
  const std::string address = "127.0.0.1:" + log.substr(port + 5, log.find('\n', port) - port - 5);
  REQUIRE(Health(address, "readiness") == HealthCheckResponse::SERVING);
  const auto stub = v1::Admin::NewStub(Dial(address));
  grpc::ClientContext context;
  RawClient::SetDeadline(context);
  v1::StatusResponse response;
  REQUIRE(stub->Status(&context, {}, &response).error_code() == grpc::StatusCode::UNIMPLEMENTED);
}

TEST_CASE("momentd: sockets have their modes whatever the umask", "[e2e]") {
  for (const mode_t mask : {mode_t{022}, mode_t{077}}) {
    const Place place;
    DaemonOptions options;
    options.umask = mask;
    options.flags = {"--admin-socket-mode", "0600"};
    Daemon daemon(place, options);
    REQUIRE(ModeOf(place / "run") == 0750);
    REQUIRE(ModeOf(daemon.socket()) == 0660);
    REQUIRE(ModeOf(daemon.socket("fd.sock")) == 0660);
    REQUIRE(ModeOf(daemon.socket("admin.sock")) == 0600);
  }
}

TEST_CASE("momentd: a second one on the state directory exits with 6 naming the holder", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  DaemonOptions second;
  second.socket_directory = place / "other";
  const Ended ended = Run(DaemonArguments(place, second));
  INFO(ended.output);
  REQUIRE(ended.code == 6);
  REQUIRE(Has(ended.output, absl::StrCat(daemon.process().pid())));
  REQUIRE(Health("unix:" + daemon.socket(), "") == HealthCheckResponse::SERVING);
}

TEST_CASE("momentd: a second one on the socket directory exits with 6 and unlinks nothing",
          "[e2e]") {
  const Place place;
  Daemon daemon(place);
  DaemonOptions second;
  second.state_directory = place / "other";
  const Ended ended = Run(DaemonArguments(place, second));
  INFO(ended.output);
  REQUIRE(ended.code == 6);
  REQUIRE(Has(ended.output, absl::StrCat(daemon.process().pid())));
  REQUIRE(Health("unix:" + daemon.socket(), "") == HealthCheckResponse::SERVING);
}

TEST_CASE("momentd: after kill -9 the next one takes over the stale sockets at once", "[e2e]") {
  const Place place;
  {
    Daemon daemon(place);
    daemon.process().Signal(SIGKILL);
    REQUIRE(daemon.process().Wait().code == -SIGKILL);
    REQUIRE(std::filesystem::exists(daemon.socket()));
  }
  Daemon daemon(place);
  REQUIRE(Health("unix:" + daemon.socket(), "") == HealthCheckResponse::SERVING);
}

TEST_CASE("momentd: one that was killed but not reaped does not stand in the next one's way",
          "[e2e]") {
  const Place place;
  Daemon first(place);
  first.process().Signal(SIGKILL);  // a zombie until the test ends
  Daemon second(place);
  REQUIRE(Health("unix:" + second.socket(), "") == HealthCheckResponse::SERVING);
}

TEST_CASE("momentd: a socket path over 107 bytes exits with 2 and says so", "[e2e]") {
  const Place place;
  DaemonOptions options;
  options.socket_directory = place / std::string(120, 'p');
  const Ended ended = Run(DaemonArguments(place, options));
  INFO(ended.output);
  REQUIRE(ended.code == 2);
  REQUIRE(Has(ended.output, "107"));
}

TEST_CASE("momentd: a regular file in a socket's place exits with 2 and is kept", "[e2e]") {
  const Place place;
  std::filesystem::create_directory(place / "run");
  std::ofstream(place / "run/momentd.sock") << "mine";
  const Ended ended = Run(DaemonArguments(place));
  INFO(ended.output);
  REQUIRE(ended.code == 2);
  REQUIRE(std::filesystem::file_size(place / "run/momentd.sock") == 4);
}

TEST_CASE("momentd: unknown keys and flags exit with 2 naming the nearest", "[e2e]") {
  const Place place;
  std::ofstream(place / "momentd.conf") << "io_dpeth = 3\n";
  const Ended file = Run({MOMENTD_BINARY, "--config", place / "momentd.conf", "--check-config"});
  REQUIRE(file.code == 2);
  REQUIRE(Has(file.output, "io_depth"));
  const Ended flag = Run({MOMENTD_BINARY, "--stat-dir", "/x"});
  REQUIRE(flag.code == 2);
  REQUIRE(Has(flag.output, "--state-dir"));
}

TEST_CASE("momentd: check-config, print-config and the sample need no daemon", "[e2e]") {
  const Place place;
  const Ended sample = Run({MOMENTD_BINARY, "--print-sample-config"});
  REQUIRE(sample.code == 0);
  std::ofstream(place / "momentd.conf") << sample.output;
  REQUIRE(Run({MOMENTD_BINARY, "--config", place / "momentd.conf", "--check-config"}).code == 0);
  const Ended printed =
      Run({MOMENTD_BINARY, "--config=", "--lease=9s", "--print-config"}, {"MOMENTD_IO_DEPTH=5"});
  REQUIRE(printed.code == 0);
  REQUIRE(Has(printed.output, "lease = 9s  # flag --lease"));
  REQUIRE(Has(printed.output, "io_depth = 5  # environment MOMENTD_IO_DEPTH"));
  REQUIRE(Run({MOMENTD_BINARY, "--config=", "--lease=soon", "--check-config"}).code == 2);
}

TEST_CASE("momentd: the engine asked for, and what is volatile, stand in the status", "[e2e]") {
  const Place place;
  const Place memory("/dev/shm");
  DaemonOptions options;
  options.flags = {"--state-dir", memory / "state", "--io-engine", "threads"};
  Daemon daemon(place, options);
  const v1::StatusResponse status = StatusOf(daemon);
  REQUIRE(status.pid() == static_cast<uint32_t>(daemon.process().pid()));
  REQUIRE(status.state_directories_size() == 2);
  for (const v1::StateDirectoryStatus& directory : status.state_directories()) {
    REQUIRE(directory.io_engine() == "threads");
    REQUIRE(directory.health() == "serving");
    REQUIRE(directory.total_bytes() > 0);
  }
  REQUIRE(status.state_directories(1).file_system() == "tmpfs");
  REQUIRE(status.state_directories(1).is_volatile());
  REQUIRE(Has(daemon.process().Output(), "event=volatile"));
}

TEST_CASE("momentd: a volatile state directory is refused where the option says so", "[e2e]") {
  const Place place;
  const Place memory("/dev/shm");
  DaemonOptions options;
  options.state_directory = memory / "state";
  options.flags = {"--allow-volatile=false"};
  const Ended ended = Run(DaemonArguments(place, options));
  REQUIRE(ended.code == 2);
  REQUIRE(Has(ended.output, "allow_volatile"));
}

TEST_CASE("momentd: more host memory than the machine has exits with 7", "[e2e]") {
  const Place place;
  DaemonOptions options;
  options.flags = {};
  std::vector<std::string> arguments = DaemonArguments(place, options);
  for (std::string& argument : arguments) {
    if (argument == "128MiB") {
      argument = "1000TiB";
    }
  }
  const Ended ended = Run(arguments);
  REQUIRE(ended.code == 7);
  REQUIRE(Has(ended.output, "host_memory"));
}

TEST_CASE("momentd: metrics and the log level by the admin socket", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  const auto stub = v1::Admin::NewStub(Dial("unix:" + daemon.socket("admin.sock")));
  {
    grpc::ClientContext context;
    RawClient::SetDeadline(context);
    v1::StatsResponse stats;
    REQUIRE(stub->Stats(&context, {}, &stats).ok());
    REQUIRE(Has(stats.prometheus_text(), "moment_pool_budget_bytes"));
  }
  {
    grpc::ClientContext context;
    RawClient::SetDeadline(context);
    v1::SetLogLevelRequest request;
    request.set_level("debug");
    v1::SetLogLevelResponse response;
    REQUIRE(stub->SetLogLevel(&context, request, &response).ok());
    REQUIRE(response.previous() == "info");
  }
  {
    grpc::ClientContext context;
    RawClient::SetDeadline(context);
    v1::CompactRequest request;
    const auto stream = stub->Compact(&context, request);
    v1::CompactResponse response;
    REQUIRE_FALSE(stream->Read(&response));
    const grpc::Status status = stream->Finish();
    REQUIRE(status.error_code() == grpc::StatusCode::UNIMPLEMENTED);
    REQUIRE(Has(status.error_message(), "not part of this version"));
  }
}

TEST_CASE("momentd: SIGHUP reloads the log level of the file", "[e2e]") {
  const Place place;
  std::ofstream(place / "momentd.conf") << "log_level = info\n";
  DaemonOptions options;
  options.flags = {"--config", place / "momentd.conf"};
  Daemon daemon(place, options);
  std::ofstream(place / "momentd.conf") << "log_level = error\n";
  daemon.process().Signal(SIGHUP);
  REQUIRE(StatusOf(daemon).pid() != 0);
  // The next reload proves that the first one was done: its own record is below the level.
  std::ofstream(place / "momentd.conf") << "log_level = nonsense\n";
  daemon.process().Signal(SIGHUP);
  REQUIRE(daemon.process().AwaitOutput("event=reload error="));
}

TEST_CASE("momentd: calls of a session that never was are refused", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  const auto stub = v1::Optimizer::NewStub(Dial("unix:" + daemon.socket()));
  grpc::ClientContext context;
  RawClient::SetDeadline(context);
  v1::FlushRequest request;
  request.set_session("nobody");
  v1::FlushResponse response;
  const grpc::Status status = stub->Flush(&context, request, &response);
  REQUIRE(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  REQUIRE(Has(status.error_message(), "nobody"));
}

TEST_CASE("momentd: calls of later versions answer UNIMPLEMENTED with a sentence", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  const auto stub = v1::Optimizer::NewStub(Dial("unix:" + daemon.socket()));
  grpc::ClientContext context;
  RawClient::SetDeadline(context);
  v1::Operation response;
  const grpc::Status status = stub->Save(&context, {}, &response);
  REQUIRE(status.error_code() == grpc::StatusCode::UNIMPLEMENTED);
  REQUIRE(Has(status.error_message(), "Flush"));
}

}  // namespace
}  // namespace moment::e2e
