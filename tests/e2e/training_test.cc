// Real training against the real program: what is killed, restarted or taken over must end with the
// bits of an undisturbed run.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/e2e/daemon_process.h"
#include "tests/support/catch.h"

namespace moment::e2e {
namespace {

constexpr int kSteps = 12;

std::vector<std::string> Trainer(const Daemon& daemon, const std::string& out, int steps,
                                 const std::string& resume, int pause_ms = 0) {
  return {TRAINER_BINARY,      daemon.socket(), out,
          absl::StrCat(steps), resume,          absl::StrCat(pause_ms)};
}

std::string Bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// The parameters after kSteps undisturbed steps.
const std::string& Expected() {
  static const std::string bytes = [] {
    const Place place;
    Daemon daemon(place);
    const Ended ended = Run(Trainer(daemon, place / "out", kSteps, "auto"));
    INFO(ended.output);
    REQUIRE(ended.code == 0);
    REQUIRE(daemon.Stop().code == 0);
    return Bytes(place / "out");
  }();
  REQUIRE(bytes.size() == 366537 * sizeof(float));
  return bytes;
}

TEST_CASE("Training: two halves with a restart of the daemon between them equal one run", "[e2e]") {
  const Place place;
  {
    Daemon daemon(place);
    REQUIRE(Run(Trainer(daemon, place / "half", kSteps / 2, "auto")).code == 0);
    REQUIRE(daemon.Stop().code == 0);
  }
  Daemon daemon(place);
  const Ended ended = Run(Trainer(daemon, place / "out", kSteps, "must"));
  INFO(ended.output);
  REQUIRE(ended.code == 0);
  REQUIRE(Bytes(place / "out") == Expected());
}

TEST_CASE("Training: a killed trainer resumes at its last finished step, with the same bits",
          "[e2e]") {
  const unsigned seed = std::random_device()();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const Place place;
  Daemon daemon(place);
  int answered = 0;
  for (int round = 0; round < 3; ++round) {
    Child trainer(Trainer(daemon, place / "unused", kSteps, "auto", 2),
                  place / absl::StrCat("trainer", round));
    answered += 1 + static_cast<int>(random() % 3);
    REQUIRE(trainer.AwaitOutput(absl::StrCat("at ", answered, "\n")));
    trainer.Signal(SIGKILL);
    trainer.Wait();
    // What it saw answered is what the next one finds, or the step that was in flight.
    const std::string output = trainer.Output();
    const size_t last = output.rfind("at ");
    answered = std::max(answered, std::atoi(output.c_str() + last + 3));
    Child next(Trainer(daemon, place / "unused", kSteps, "must", 200),
               place / absl::StrCat("next", round));
    const bool stands = next.AwaitOutput("at ");
    INFO(next.Output());
    REQUIRE(stands);
    const int found = std::atoi(next.Output().c_str() + next.Output().find("at ") + 3);
    REQUIRE((found == answered || found == answered + 1));
    answered = found;
    next.Signal(SIGKILL);
    next.Wait();
  }
  const Ended ended = Run(Trainer(daemon, place / "out", kSteps, "must"));
  INFO(ended.output);
  REQUIRE(ended.code == 0);
  REQUIRE(Bytes(place / "out") == Expected());
}

TEST_CASE("Training: SIGTERM of the daemon under a live trainer loses nothing", "[e2e]") {
  const Place place;
  auto daemon = std::make_unique<Daemon>(place);
  Child trainer(Trainer(*daemon, place / "out", kSteps, "auto", 30), place / "trainer");
  REQUIRE(trainer.AwaitOutput("at 4\n"));
  const Ended stopped = daemon->Stop();
  INFO(stopped.output);
  REQUIRE(stopped.code == 0);
  daemon.reset();
  daemon = std::make_unique<Daemon>(place);
  const Ended ended = trainer.Wait();
  INFO(ended.output);
  REQUIRE(ended.code == 0);
  REQUIRE(Bytes(place / "out") == Expected());
}

TEST_CASE("Training: kill -9 of the daemon costs at most the one answered step", "[e2e]") {
  const Place place;
  auto daemon = std::make_unique<Daemon>(place);
  Child trainer(Trainer(*daemon, place / "out", kSteps, "auto", 10), place / "trainer");
  REQUIRE(trainer.AwaitOutput("at 5\n"));
  daemon->process().Signal(SIGKILL);
  daemon->process().Wait();
  daemon.reset();
  daemon = std::make_unique<Daemon>(place);
  const Ended ended = trainer.Wait();
  INFO(ended.output);
  if (ended.code == 3) {
    const size_t last = ended.output.rfind("at ");
    const int answered = std::atoi(ended.output.c_str() + last + 3);
    const size_t rewound = ended.output.find("rewound to ");
    REQUIRE(std::atoi(ended.output.c_str() + rewound + 11) == answered - 1);
    REQUIRE(Run(Trainer(*daemon, place / "out", kSteps, "must")).code == 0);
  } else {
    REQUIRE(ended.code == 0);
  }
  REQUIRE(Bytes(place / "out") == Expected());
}

TEST_CASE("Training: a second trainer is refused naming the first", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  Child first(Trainer(daemon, place / "unused", 1000, "auto", 50), place / "first");
  REQUIRE(first.AwaitOutput("at 2\n"));
  const Ended second = Run(Trainer(daemon, place / "unused", 1, "auto"));
  INFO(second.output);
  REQUIRE(second.code == 4);
  REQUIRE(second.output.find(absl::StrCat(first.pid())) != std::string::npos);
}

TEST_CASE("Training: existing state is refused without a choice, and never starts over", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  REQUIRE(Run(Trainer(daemon, place / "first", 3, "ask")).code == 0);
  const Ended refused = Run(Trainer(daemon, place / "unused", 3, "ask"));
  INFO(refused.output);
  REQUIRE(refused.code == 4);
  REQUIRE(refused.output.find("sequence 3") != std::string::npos);
  const Ended over = Run(Trainer(daemon, place / "out", kSteps, "never"));
  INFO(over.output);
  REQUIRE(over.code == 0);
  REQUIRE(Bytes(place / "out") == Expected());
}

}  // namespace
}  // namespace moment::e2e
