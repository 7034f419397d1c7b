#include "daemon/state_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/support/catch.h"

namespace moment {
namespace {

struct Place {
  Place() {
    spdlog::set_level(spdlog::level::off);
    REQUIRE(::mkdtemp(path) != nullptr);
  }
  ~Place() { std::filesystem::remove_all(path); }

  StateLockOptions Options() const {
    StateLockOptions options;
    options.state_directory = path;
    options.socket_directory = "/run/x";
    options.patience = std::chrono::milliseconds(50);
    return options;
  }
  std::string Content() const {
    std::ifstream stream(std::string(path) + "/LOCK");
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // The lock as another process holds it: a descriptor of its own, with this pid written in.
  base::UniqueFd HeldBy(pid_t pid) const {
    base::UniqueFd fd(
        ::open((std::string(path) + "/LOCK").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640));
    REQUIRE(::flock(fd.get(), LOCK_EX) == 0);
    const std::string text = absl::StrCat(pid, "\n/run/y\n");
    REQUIRE(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
    return fd;
  }

  char path[32] = "/tmp/moment-lock-XXXXXX";
};

TEST_CASE("State lock: it names its holder and its sockets, and is empty after it", "[app]") {
  const Place place;
  {
    const StateLock lock = StateLock::Acquire(place.Options()).value();
    REQUIRE(place.Content() == absl::StrCat(::getpid(), "\n/run/x\n"));
  }
  REQUIRE(place.Content().empty());
}

TEST_CASE("State lock: a living holder is a conflict that names it", "[app]") {
  const Place place;
  const base::UniqueFd held = place.HeldBy(::getpid());
  const absl::Status status = StateLock::Acquire(place.Options()).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(status.message().find(absl::StrCat(::getpid())) != absl::string_view::npos);
}

TEST_CASE("State lock: the last writes of a dead holder are waited for", "[app]") {
  const Place place;
  const pid_t dead = ::fork();
  if (dead == 0) {
    ::_exit(0);
  }
  ::waitpid(dead, nullptr, 0);
  base::UniqueFd held = place.HeldBy(dead);
  std::thread release([&] { held.Reset(); });
  REQUIRE(StateLock::Acquire(place.Options()).ok());
  release.join();
}

TEST_CASE("State lock: the wait for a lock that nobody releases ends", "[app]") {
  const Place place;
  const base::UniqueFd held = place.HeldBy(0);
  StateLockOptions options = place.Options();
  options.drain = std::chrono::milliseconds(60);
  REQUIRE(StateLock::Acquire(options).status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("State lock: a signal to stop ends the wait", "[app]") {
  const Place place;
  const base::UniqueFd held = place.HeldBy(0);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &stop, nullptr) == 0);
  REQUIRE(::raise(SIGTERM) == 0);
  REQUIRE(StateLock::Acquire(place.Options()).status().code() == absl::StatusCode::kCancelled);
  REQUIRE(::pthread_sigmask(SIG_UNBLOCK, &stop, nullptr) == 0);
}

}  // namespace
}  // namespace moment
