// Several trainers at once: ranks of one job, and another job, on one daemon. What happens to one
// of them is not seen in the results of the others.
#include <signal.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/daemon_process.h"
#include "tests/support/catch.h"

namespace moment::e2e {
namespace {

constexpr int kRanks = 4;
constexpr int kSteps = 16;
constexpr int kPatienceSeconds = 300;

std::vector<std::string> Trainer(const Daemon& daemon, const std::string& out, const char* resume,
                                 int rank, const char* job = "ranks", int pause_ms = 0) {
  return {TRAINER_BINARY, daemon.socket(),        out, absl::StrCat(kSteps),
          resume,         absl::StrCat(pause_ms), job, absl::StrCat(rank)};
}

std::string Bytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// By rank, each trained alone.
const std::vector<std::string>& Expected() {
  static const std::vector<std::string> expected = [] {
    const Place place;
    Daemon daemon(place);
    std::vector<std::string> bytes;
    for (int rank = 0; rank < kRanks; ++rank) {
      const Ended ended = Run(Trainer(daemon, place / "out", "auto", rank, "alone"));
      INFO(ended.output);
      REQUIRE(ended.code == 0);
      bytes.push_back(Bytes(place / "out"));
    }
    REQUIRE(bytes[0] != bytes[1]);
    return bytes;
  }();
  return expected;
}

// One trainer a rank, all running.
struct Ranks {
  Ranks(const Daemon& daemon, const Place& at, const char* resume, int pause_ms)
      : place(at), pause(pause_ms) {
    for (int rank = 0; rank < kRanks; ++rank) {
      trainers.push_back(nullptr);
      Start(daemon, rank, resume);
    }
  }

  void Start(const Daemon& daemon, int rank, const char* resume) {
    trainers[static_cast<size_t>(rank)] =
        std::make_unique<Child>(Trainer(daemon, Out(rank), resume, rank, "ranks", pause),
                                place / absl::StrCat("trainer", rank, "-", ++started));
  }

  void Kill(int rank, int after_step) {
    Child& trainer = *trainers[static_cast<size_t>(rank)];
    const bool reached =
        trainer.AwaitOutput(absl::StrCat("at ", after_step, "\n"), kPatienceSeconds);
    INFO(trainer.Output());
    REQUIRE(reached);
    trainer.Signal(SIGKILL);
    REQUIRE(trainer.Wait().code == -SIGKILL);
  }

  std::string Out(int rank) const { return place / absl::StrCat("out", rank); }

  void RequireEqual(int rank) {
    const Ended ended = trainers[static_cast<size_t>(rank)]->Wait();
    INFO("rank " << rank << ": " << ended.output);
    REQUIRE(ended.code == 0);
    CHECK(Bytes(Out(rank)) == Expected()[static_cast<size_t>(rank)]);
  }

  const Place& place;
  int pause;
  int started = 0;
  std::vector<std::unique_ptr<Child>> trainers;
};

TEST_CASE("Ranks: four trainers and another job at once end with the bits of each alone", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  Ranks ranks(daemon, place, "auto", 0);
  Child other(Trainer(daemon, place / "other", "auto", 1, "another job"), place / "log");
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.RequireEqual(rank);
  }
  REQUIRE(other.Wait().code == 0);
  CHECK(Bytes(place / "other") == Expected()[1]);
  CHECK(daemon.Stop().code == 0);
}

TEST_CASE("Ranks: the kill of one disturbs no other, and it goes on where it was", "[e2e]") {
  const Place place;
  Daemon daemon(place);
  Ranks ranks(daemon, place, "auto", 10);
  ranks.Kill(1, 2);
  ranks.Kill(2, 5);
  ranks.Start(daemon, 1, "must");
  ranks.Kill(1, 8);
  ranks.Start(daemon, 2, "must");
  ranks.Start(daemon, 1, "must");
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.RequireEqual(rank);
  }
  // The two that were left alone saw none of it: every step once, and no reopening.
  for (const size_t rank : {size_t{0}, size_t{3}}) {
    std::string expected;
    for (int step = 0; step <= kSteps; ++step) {
      expected += absl::StrCat("at ", step, "\n");
    }
    CHECK(ranks.trainers[rank]->Output() == expected);
  }
}

TEST_CASE("Ranks: a drain of the daemon under four trainers loses nothing of any", "[e2e]") {
  const Place place;
  auto daemon = std::make_unique<Daemon>(place);
  Ranks ranks(*daemon, place, "auto", 20);
  REQUIRE(ranks.trainers[0]->AwaitOutput("at 5\n", kPatienceSeconds));
  REQUIRE(daemon->Stop().code == 0);
  daemon.reset();
  daemon = std::make_unique<Daemon>(place);
  for (int rank = 0; rank < kRanks; ++rank) {
    ranks.RequireEqual(rank);
  }
}

}  // namespace
}  // namespace moment::e2e
