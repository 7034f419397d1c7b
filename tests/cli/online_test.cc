// The subcommands against a daemon that answers by script.
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "daemon/base/fd.h"
#include "tests/cli/capture.h"
#include "tests/cli/fake_daemon.h"
#include "tests/cli/scratch.h"
#include "tests/support/catch.h"

namespace moment::cli {
namespace {

namespace fs = std::filesystem;
using test::ContainsSubstring;

google::protobuf::Struct Parsed(const std::string& document) {
  google::protobuf::Struct parsed;
  INFO(document);
  REQUIRE(google::protobuf::util::JsonStringToMessage(document, &parsed).ok());
  return parsed;
}

struct Fixture {
  Scratch scratch;
  std::string directory = scratch.path().string();
  FakeDaemon daemon{absl::StrCat("unix:", directory, "/admin.sock")};
  Capture capture;

  Fixture() { REQUIRE(daemon.listening()); }

  int Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--socket-dir", directory, "--timeout", "5"});
    return capture.Run(arguments);
  }
  std::string out() const { return capture.out.str(); }
  std::string err() const { return capture.err.str(); }
};

v1::StoreName Name(const std::string& job) {
  v1::StoreName name;
  name.set_job(job);
  name.set_role("model");
  name.set_rank(3);
  return name;
}

v1::StoreSummary Summary(const std::string& job) {
  v1::StoreSummary summary;
  *summary.mutable_name() = Name(job);
  summary.set_directory("/state/jobs/" + job + "/model/rank00003");
  summary.set_sequence(17);
  summary.set_parameters(3'200'000);
  summary.set_tensors(52);
  summary.set_disk_bytes(115'343'360);
  summary.set_last_commit_unix_time_ns(1'740'830'400'000'000'000);
  return summary;
}

v1::DescribeResponse Described(const std::string& job) {
  v1::DescribeResponse response;
  response.mutable_store()->set_format_version(1);
  response.mutable_store()->set_store_uuid("0123456789abcdef0123456789abcdef");
  *response.mutable_store()->mutable_name() = Name(job);
  v1::Layout& layout = *response.mutable_layout();
  layout.set_profile(v1::PROFILE_TORCH_CPU);
  layout.add_members()->set_name("opt0_0");
  v1::Tensor& tensor = *layout.add_tensors();
  tensor.set_name("wte.weight");
  tensor.add_shape(10);
  tensor.add_shape(4);
  tensor.set_parameter_type(v1::DATA_TYPE_BFLOAT16);
  layout.add_buckets();
  v1::CommitRecord& commit = *response.add_commits();
  commit.set_id(9);
  commit.set_sequence(17);
  commit.set_due(true);
  commit.add_buckets()->set_file(2);
  v1::TensorSteps& steps = *commit.add_steps();
  steps.set_count(1);
  steps.set_t(17);
  v1::BucketFile& file = *response.add_files();
  file.set_path("/state/jobs/" + job + "/model/rank00003/opt0_0/bucket00000.2.safetensors");
  file.add_commits(9);
  *response.mutable_summary() = Summary(job);
  return response;
}

v1::VerifyResponse Progressed(uint64_t done, uint64_t total, bool last) {
  v1::VerifyResponse response;
  response.set_bytes_done(done);
  response.set_bytes_total(total);
  response.set_done(last);
  return response;
}

v1::PinSummary Pin(const std::string& id) {
  v1::PinSummary pin;
  pin.set_id(id);
  pin.mutable_owner()->set_pid(9131);
  pin.mutable_owner()->set_program("train.py");
  pin.set_unix_time_ns(absl::ToUnixNanos(absl::Now() - absl::Minutes(90)));
  pin.set_sequence(293);
  pin.set_size_bytes(12 << 20);
  pin.set_held_bytes(4 << 20);
  return pin;
}

TEST_CASE_METHOD(Fixture, "status: shows pins with owner, age and bytes", "[cli]") {
  v1::SessionStatus& session = *daemon.status.add_sessions();
  *session.mutable_name() = Name("train");
  *session.add_pins() = Pin("3fa9c0ffee");
  CHECK(Run({"status"}) == 0);
  for (const char* text : {"3fa9c0ffee", "train/model/3", "293", "9131", "train.py", "1h 30m",
                           "12.0 MiB", "4.0 MiB"}) {
    CHECK_THAT(out(), ContainsSubstring(text));
  }
}

TEST_CASE_METHOD(Fixture, "inspect: shows pins, and those that cannot be read with the reason",
                 "[cli]") {
  daemon.describe = Described("train");
  *daemon.describe.mutable_summary()->add_pins() = Pin("3fa9c0ffee");
  v1::PinSummary half = Pin("beef");
  half.set_problem("half of a pin");
  *daemon.describe.mutable_summary()->add_pins() = half;
  CHECK(Run({"inspect", "train/model/3"}) == 0);
  CHECK_THAT(out(), ContainsSubstring("3fa9c0ffee") && ContainsSubstring("half of a pin"));
}

TEST_CASE_METHOD(Fixture, "drop: asks the daemon to let a pin go", "[cli]") {
  CHECK(Run({"drop", "train/model/3", "--pin", "3fa9"}) == 0);
  CHECK(daemon.dropped.name().job() == "train");
  CHECK(daemon.dropped.name().rank() == 3);
  CHECK(daemon.dropped.pin() == "3fa9");
  CHECK(out() == "dropped pin 3fa90000 of train/model/3: 3.0 MiB freed\n");
}

TEST_CASE_METHOD(Fixture, "drop: one JSON object", "[cli]") {
  CHECK(Run({"drop", "train/model/3", "--pin", "3fa9", "--json"}) == 0);
  const google::protobuf::Struct parsed = Parsed(out());
  CHECK(parsed.fields().at("pin").string_value() == "3fa90000");
  CHECK(parsed.fields().at("store").string_value() == "train/model/3");
  CHECK(parsed.fields().at("freed_bytes").number_value() == 3 << 20);
}

TEST_CASE_METHOD(Fixture, "drop: what the daemon refuses has its exit code", "[cli]") {
  daemon.failure = {grpc::StatusCode::NOT_FOUND, "no pin 3fa9; there are [beef]"};
  CHECK(Run({"drop", "train/model/3", "--pin", "3fa9"}) == 4);
  CHECK_THAT(err(), ContainsSubstring("there are [beef]"));
  CHECK(Run({"drop", "train/model/3"}) == 2);
  CHECK(Run({"drop", "--pin", "3fa9"}) == 2);
}

TEST_CASE_METHOD(Fixture, "status: shows daemon, directories, reasons and sessions", "[cli]") {
  daemon.status.set_version("0.1.0");
  daemon.status.set_pid(4711);
  daemon.status.set_uptime_seconds(185);
  v1::StateDirectoryStatus& directory_status = *daemon.status.add_state_directories();
  directory_status.set_path("/mnt/state");
  directory_status.set_io_engine("threads");
  directory_status.set_io_engine_reason("io_uring_setup: Operation not permitted");
  directory_status.set_health("serving");
  v1::SessionStatus& session = *daemon.status.add_sessions();
  *session.mutable_name() = Name("train");
  session.set_activity("step");
  CHECK(Run({"status"}) == 0);
  CHECK_THAT(out(), ContainsSubstring("0.1.0, pid 4711, up 3m 05s"));
  CHECK_THAT(out(), ContainsSubstring(
                        "/mnt/state: engine threads: io_uring_setup: Operation not permitted"));
  CHECK_THAT(out(), ContainsSubstring("train/model/3"));
  CHECK(err().empty());
}

TEST_CASE_METHOD(Fixture, "status: --json is one object with schema_version", "[cli]") {
  daemon.status.set_pid(4711);
  CHECK(Run({"status", "--json"}) == 0);
  CHECK(Parsed(out()).fields().at("schema_version").number_value() == 1);
  CHECK(Parsed(out()).fields().at("pid").number_value() == 4711);
}

TEST_CASE_METHOD(Fixture, "list: one line a store, and why one cannot be read", "[cli]") {
  *daemon.list.add_stores() = Summary("train");
  v1::StoreSummary& broken = *daemon.list.add_stores();
  broken.set_directory("/state/jobs/x/model/rank00000");
  broken.set_problem("store.json: offset 0: not JSON");
  CHECK(Run({"list"}) == 0);
  CHECK_THAT(out(), ContainsSubstring("train/model/3") && ContainsSubstring("2025-03-01 12:00:00"));
  CHECK_THAT(out(), ContainsSubstring("unreadable"));
  CHECK_THAT(out(),
             ContainsSubstring("/state/jobs/x/model/rank00000: store.json: offset 0: not JSON"));
}

TEST_CASE_METHOD(Fixture, "list: says so when there is nothing", "[cli]") {
  CHECK(Run({"list"}) == 0);
  CHECK_THAT(out(), ContainsSubstring("no stores in"));
}

TEST_CASE_METHOD(Fixture, "inspect: a store by name", "[cli]") {
  daemon.describe = Described("train");
  CHECK(Run({"inspect", "train/model/3", "--tensors"}) == 0);
  CHECK_THAT(out(), ContainsSubstring("0123456789abcdef0123456789abcdef"));
  CHECK_THAT(out(), ContainsSubstring("opt0_0/bucket00000.2.safetensors"));
  CHECK_THAT(out(), ContainsSubstring("wte.weight") && ContainsSubstring("[10, 4]") &&
                        ContainsSubstring("bfloat16"));
}

TEST_CASE_METHOD(Fixture, "inspect: a name that job/role/rank cannot say", "[cli]") {
  daemon.describe = Described("/odd name");
  CHECK(Run({"inspect", "--job", "/odd name", "--role", "model", "--rank", "3"}) == 0);
  CHECK_THAT(out(), ContainsSubstring("/odd name/model/3"));
}

TEST_CASE_METHOD(Fixture, "inspect: one commit of a store", "[cli]") {
  daemon.describe = Described("train");
  CHECK(Run({"inspect", "train/model/3", "--commit", "9", "--json"}) == 0);
  const google::protobuf::Struct parsed = Parsed(out());
  CHECK(parsed.fields().at("kind").string_value() == "commit");
  CHECK(parsed.fields().at("sequence").number_value() == 17);
}

TEST_CASE_METHOD(Fixture, "inspect: a commit that is not live is not found, with those that are",
                 "[cli]") {
  daemon.describe = Described("train");
  CHECK(Run({"inspect", "train/model/3", "--commit", "8"}) == 4);
  CHECK_THAT(err(), ContainsSubstring("no live commit with id 8; there are: 9"));
}

TEST_CASE_METHOD(Fixture, "inspect: a store that the daemon does not know is not found", "[cli]") {
  daemon.describe = Described("train");
  CHECK(Run({"inspect", "other/model/3"}) == 4);
  CHECK(out().empty());
}

TEST_CASE_METHOD(Fixture, "verify: all stores, with bytes and result", "[cli]") {
  *daemon.list.add_stores() = Summary("train");
  daemon.verify = {Progressed(0, 100, false), Progressed(100, 100, true)};
  CHECK(Run({"verify"}) == 0);
  CHECK_THAT(out(), ContainsSubstring("train/model/3") && ContainsSubstring("100 B") &&
                        ContainsSubstring("ok"));
}

TEST_CASE_METHOD(Fixture, "verify: damage is exit 5, naming file and offset", "[cli]") {
  daemon.verify = {Progressed(100, 100, true)};
  v1::VerifyProblem& problem = *daemon.verify[0].add_problems();
  problem.set_path("/state/f.safetensors");
  problem.set_offset(4096);
  problem.set_message("checksum of main unit 0 differs");
  CHECK(Run({"verify", "train/model/3"}) == 5);
  CHECK_THAT(out(), ContainsSubstring(
                        "/state/f.safetensors: offset 4096: checksum of main unit 0 differs"));
  CHECK(Run({"verify", "train/model/3", "--json"}) == 5);
  CHECK(Parsed(out()).fields().at("problem_count").number_value() == 1);
}

TEST_CASE_METHOD(Fixture, "verify: a store that the list calls unreadable is damage", "[cli]") {
  v1::StoreSummary& broken = *daemon.list.add_stores();
  broken.set_directory("/state/jobs/x/model/rank00000");
  broken.set_problem("both copies of commit.0 are damaged");
  CHECK(Run({"verify"}) == 5);
  CHECK_THAT(out(), ContainsSubstring("both copies of commit.0 are damaged"));
}

TEST_CASE_METHOD(Fixture, "verify: an end without a last message is a failure", "[cli]") {
  daemon.verify = {Progressed(50, 100, false)};
  CHECK(Run({"verify", "train/model/3"}) == 1);
  CHECK_THAT(err(), ContainsSubstring("before its end"));
  CHECK(out().empty());
}

TEST_CASE_METHOD(Fixture, "verify: a wish to stop ends it, and says what was done", "[cli]") {
  daemon.verify = {Progressed(50, 100, false)};
  daemon.verify_hangs = true;
  std::thread stopper([&] {
    daemon.verify_arrived.WaitForNotification();
    capture.cancellation.Cancel();
  });
  CHECK(Run({"verify", "train/model/3"}) == 1);
  stopper.join();
  CHECK_THAT(err(), ContainsSubstring("interrupted: 0 of 1 stores verified"));
  CHECK(out().empty());
}

TEST_CASE_METHOD(Fixture, "A daemon's refusal keeps its code and its words", "[cli]") {
  daemon.failure = {grpc::StatusCode::RESOURCE_EXHAUSTED, "no memory for that"};
  CHECK(Run({"list"}) == 7);
  CHECK(err() == "momentctl: no memory for that\n");
  daemon.failure = {grpc::StatusCode::UNIMPLEMENTED, "not in this version"};
  CHECK(Run({"status"}) == 1);
}

TEST_CASE_METHOD(Fixture, "health: serving is exit 0, not serving 1, an unknown service 4",
                 "[cli]") {
  CHECK(Run({"health"}) == 0);
  CHECK(out() == "serving\n");
  daemon.health = grpc::health::v1::HealthCheckResponse::NOT_SERVING;
  CHECK(Run({"health", "--service", "readiness", "--json"}) == 1);
  CHECK(Parsed(out()).fields().at("status").string_value() == "not_serving");
  CHECK(Parsed(out()).fields().at("service").string_value() == "readiness");
  CHECK(Run({"health", "--service", "unknown"}) == 4);
}

TEST_CASE("health: uses the trainers' socket where admin.sock is not there", "[cli]") {
  const Scratch scratch;
  const FakeDaemon daemon(absl::StrCat("unix:", scratch.path().string(), "/momentd.sock"));
  REQUIRE(daemon.listening());
  Capture capture;
  CHECK(capture.Run({"health", "--socket-dir", scratch.path().string()}) == 0);
}

TEST_CASE("health: by TCP", "[cli]") {
  const FakeDaemon daemon("127.0.0.1:0");
  REQUIRE(daemon.listening());
  Capture capture;
  CHECK(capture.Run({"health", "--address", absl::StrCat("127.0.0.1:", daemon.port())}) == 0);
}

TEST_CASE("health: an address where nobody listens is exit 3", "[cli]") {
  // Bound and not listening: the port is taken, and every connection is refused.
  const base::UniqueFd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  REQUIRE(::bind(taken.get(), reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  Capture capture;
  CHECK(capture.Run({"health", "--address", absl::StrCat("127.0.0.1:", ntohs(address.sin_port)),
                     "--timeout", "0.3"}) == 3);
}

TEST_CASE("The socket directory comes from flag, then environment", "[cli]") {
  const Scratch scratch;
  const FakeDaemon daemon(absl::StrCat("unix:", scratch.path().string(), "/admin.sock"));
  REQUIRE(daemon.listening());
  Capture capture;
  ::setenv("MOMENTD_SOCKET_DIR", scratch.path().c_str(), 1);
  CHECK(capture.Run({"health"}) == 0);
  CHECK(capture.Run({"health", "--socket-dir", "/nonexistent"}) == 3);
  ::unsetenv("MOMENTD_SOCKET_DIR");
}

TEST_CASE("A missing socket is exit 3 and says where it was looked for", "[cli]") {
  const Scratch scratch;
  Capture capture;
  CHECK(capture.Run({"status", "--socket-dir", scratch.path().string()}) == 3);
  CHECK_THAT(capture.err.str(), ContainsSubstring(scratch.path().string() + "/admin.sock") &&
                                    ContainsSubstring("the socket does not exist"));
}

// A socket whose process has ended: its name stays, nobody listens.
void MakeStaleSocket(const std::string& path) {
  const base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
}

TEST_CASE("A stale socket is exit 3 and says that its daemon has ended", "[cli]") {
  const Scratch scratch;
  MakeStaleSocket(scratch.path() / "admin.sock");
  Capture capture;
  CHECK(capture.Run({"status", "--socket-dir", scratch.path().string()}) == 3);
  CHECK_THAT(capture.err.str(), ContainsSubstring("its daemon has ended"));
}

TEST_CASE("A regular file in the socket's place is exit 3 and named so", "[cli]") {
  const Scratch scratch;
  std::ofstream(scratch.path() / "admin.sock") << "x";
  Capture capture;
  CHECK(capture.Run({"status", "--socket-dir", scratch.path().string()}) == 3);
  CHECK_THAT(capture.err.str(), ContainsSubstring("this is not a socket"));
}

TEST_CASE("A socket that accepts and never answers is exit 3 after the timeout", "[cli]") {
  const Scratch scratch;
  const std::string path = scratch.path() / "admin.sock";
  const base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  REQUIRE(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  REQUIRE(::listen(fd.get(), 4) == 0);
  Capture capture;
  CHECK(capture.Run({"status", "--socket-dir", scratch.path().string(), "--timeout", "0.3"}) == 3);
  CHECK_THAT(capture.err.str(), ContainsSubstring("--timeout"));
}

TEST_CASE("A socket path over 107 bytes is exit 2, with and without a scheme", "[cli]") {
  const std::string directory = "/tmp/" + std::string(110, 'd');
  for (const char* scheme : {"", "unix:", "unix://"}) {
    Capture capture;
    CHECK(capture.Run({"status", "--socket-dir", scheme + directory}) == 2);
    CHECK_THAT(capture.err.str(), ContainsSubstring("107"));
  }
}

}  // namespace
}  // namespace moment::cli
