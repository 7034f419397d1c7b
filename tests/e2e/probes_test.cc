// Probes of the real program while its disk does not answer: each is answered at once, and says
// what is wrong with what.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/daemon_process.h"
#include "tests/e2e/raw_client.h"
#include "tests/support/catch.h"

namespace moment::e2e {
namespace {

using grpc::health::v1::HealthCheckResponse;

constexpr int kStallSeconds = 8;

std::vector<std::string> Trainer(const Daemon& daemon, const std::string& out, int steps,
                                 const std::string& resume) {
  return {TRAINER_BINARY, daemon.socket(), out, absl::StrCat(steps), resume};
}

// A store of two steps, so that what is written next belongs to a step and not to the first Open.
void MakeStore(const Place& place) {
  Daemon daemon(place);
  REQUIRE(Run(Trainer(daemon, place / "unused", 2, "auto")).code == 0);
  REQUIRE(daemon.Stop().code == 0);
}

struct Probe {
  std::string address;
  std::string service;
  bool depends_on_disk = false;
  bool was_not_serving = false;
};

std::string TcpAddress(Daemon& daemon) {
  const std::string log = daemon.process().Output();
  const size_t port = log.find("port=", log.find("event=health_listen"));
  return "127.0.0.1:" + log.substr(port + 5, log.find('\n', port) - port - 5);
}

// Every service, and every door.
class Probes {
 public:
  Probes(Daemon& daemon, const std::string& directory) {
    const std::string socket = "unix:" + daemon.socket();
    probes_ = {{socket, ""},
               {socket, "liveness"},
               {socket, "readiness", true},
               {socket, directory, true},
               {"unix:" + daemon.socket("admin.sock"), "readiness", true},
               {TcpAddress(daemon), directory, true}};
  }

  // All of them, again and again, until the trainer has ended.
  Ended AskUntilEnd(Child& trainer) {
    std::optional<Ended> ended;
    while (!(ended = trainer.Poll()).has_value()) {
      for (Probe& probe : probes_) {
        Ask(probe);
      }
    }
    return *ended;
  }

  // A probe that waited for the disk would take what is left of the stall. On a machine that is
  // busy a single one may be late for want of a processor.
  void RequireQuick() {
    std::sort(seconds_.begin(), seconds_.end());
    INFO(seconds_.size() << " probes, the median " << seconds_[seconds_.size() / 2]
                         << " s, the last " << seconds_.back() << " s");
    CHECK(seconds_[seconds_.size() * 3 / 4] < 1.0);
    CHECK(seconds_.back() < kStallSeconds / 2);
  }

  const std::vector<Probe>& all() const { return probes_; }

 private:
  void Ask(Probe& probe) {
    const auto start = std::chrono::steady_clock::now();
    const bool serving = Health(probe.address, probe.service) == HealthCheckResponse::SERVING;
    seconds_.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    probe.was_not_serving = probe.was_not_serving || !serving;
  }

  std::vector<Probe> probes_;
  std::vector<double> seconds_;
};

// The watch looks at the disk at intervals: the trainer may be told of its step before the probes.
bool ServesAgain(const Probe& probe) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  bool serving = false;
  while (!serving && std::chrono::steady_clock::now() < deadline) {
    serving = Health(probe.address, probe.service) == HealthCheckResponse::SERVING;
  }
  return serving;
}

TEST_CASE("Health: while the disk stalls every probe is answered within a second", "[e2e]") {
  const Place place;
  MakeStore(place);
  const std::string engine = GENERATE("auto", "threads");
  DaemonOptions options;
  options.flags = {"--stall-after", "1s", "--health-listen", "127.0.0.1:0", "--io-engine", engine};
  options.variables = {
      absl::StrCat("MOMENTD_FAILPOINTS=io.write=sleep:", kStallSeconds * 1000, "@5")};
  Daemon daemon(place, options);
  Probes probes(daemon, place / "state");
  Child trainer(Trainer(daemon, place / "out", 4, "must"), place / "trainer");
  const Ended ended = probes.AskUntilEnd(trainer);
  INFO(engine << "\n" << ended.output << daemon.process().Output());
  REQUIRE(ended.code == 0);
  probes.RequireQuick();
  for (const Probe& probe : probes.all()) {
    INFO(probe.address << " '" << probe.service << "'");
    CHECK(probe.was_not_serving == probe.depends_on_disk);
    CHECK(ServesAgain(probe));
  }
  CHECK(Has(daemon.process().Output(), "event=device_stalled"));
}

TEST_CASE("Health: while a commit takes long every probe is answered within a second", "[e2e]") {
  const Place place;
  MakeStore(place);
  DaemonOptions options;
  options.flags = {"--health-listen", "127.0.0.1:0"};
  options.variables = {
      absl::StrCat("MOMENTD_FAILPOINTS=store.before_data_sync=sleep:", kStallSeconds * 1000, "@1")};
  Daemon daemon(place, options);
  Probes probes(daemon, place / "state");
  Child trainer(Trainer(daemon, place / "out", 4, "must"), place / "trainer");
  const auto start = std::chrono::steady_clock::now();
  const Ended ended = probes.AskUntilEnd(trainer);
  INFO(ended.output);
  REQUIRE(ended.code == 0);
  REQUIRE(std::chrono::steady_clock::now() - start > std::chrono::seconds(kStallSeconds));
  probes.RequireQuick();
  for (const Probe& probe : probes.all()) {
    CHECK_FALSE(probe.was_not_serving);
  }
}

}  // namespace
}  // namespace moment::e2e
