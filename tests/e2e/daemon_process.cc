#include "tests/e2e/daemon_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tests/support/catch.h"

extern char** environ;

namespace moment::e2e {
namespace {

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) {
    pointers.push_back(text.data());
  }
  pointers.push_back(nullptr);
  return pointers;
}

// The test's environment without what would steer a daemon, and with `variables`.
std::vector<std::string> Environment(const std::vector<std::string>& variables) {
  std::vector<std::string> environment = variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (std::string(*variable).rfind("MOMENTD_", 0) != 0) {
      environment.emplace_back(*variable);
    }
  }
  return environment;
}

int CodeOf(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status); }

std::string UniqueOutput() {
  static std::atomic<int> count{0};
  return absl::StrCat("/tmp/moment-e2e-output-", ::getpid(), "-", ++count);
}

}  // namespace

Place::Place(const std::string& parent) : path_(parent + "/moment-e2e-XXXXXX") {
  REQUIRE(::mkdtemp(path_.data()) != nullptr);
}

Place::~Place() { std::filesystem::remove_all(path_); }

Child::Child(const std::vector<std::string>& arguments, const std::string& output_path,
             const std::vector<std::string>& variables)
    : output_path_(output_path) {
  std::vector<std::string> texts = arguments;
  std::vector<std::string> environment = Environment(variables);
  const std::vector<char*> argv = Pointers(texts);
  const std::vector<char*> envp = Pointers(environment);
  const int output = ::open(output_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  REQUIRE(output >= 0);
  pid_ = ::fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) {
    ::dup2(output, 1);
    ::dup2(output, 2);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(output);
}

Child::~Child() {
  if (!status_.has_value()) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::filesystem::remove(output_path_);
}

void Child::Signal(int number) const {
  if (!status_.has_value()) {
    ::kill(pid_, number);
  }
}

Ended Child::Wait() {
  if (!status_.has_value()) {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    status_ = status;
  }
  return {CodeOf(*status_), Output()};
}

std::optional<Ended> Child::Poll() {
  int status = 0;
  if (!status_.has_value() && ::waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = status;
  }
  return status_.has_value() ? std::optional<Ended>(Wait()) : std::nullopt;
}

std::string Child::Output() const {
  std::ifstream stream(output_path_);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool Child::AwaitOutput(const std::string& text, int seconds) {
  // A file tells no one that it grew: look every few milliseconds.
  const timespec pause = {0, 5'000'000};
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
  while (Output().find(text) == std::string::npos) {
    if (Poll().has_value() || std::chrono::steady_clock::now() > give_up) {
      return Output().find(text) != std::string::npos;
    }
    ::nanosleep(&pause, nullptr);
  }
  return true;
}

std::vector<std::string> DaemonArguments(const Place& place, const DaemonOptions& options) {
  const std::string state =
      options.state_directory.empty() ? place / "state" : options.state_directory;
  const std::string sockets =
      options.socket_directory.empty() ? place / "run" : options.socket_directory;
  std::vector<std::string> arguments = {MOMENTD_BINARY,     "--config=", "--state-dir",   state,
                                        "--socket-dir",     sockets,     "--host-memory", "128MiB",
                                        "--worker-threads", "2"};
  arguments.insert(arguments.end(), options.flags.begin(), options.flags.end());
  return arguments;
}

Daemon::Daemon(const Place& place, const DaemonOptions& options)
    : socket_directory_(options.socket_directory.empty() ? place / "run"
                                                         : options.socket_directory) {
  const mode_t before = options.umask.has_value() ? ::umask(*options.umask) : 0;
  child_ =
      std::make_unique<Child>(DaemonArguments(place, options), UniqueOutput(), options.variables);
  if (options.umask.has_value()) {
    ::umask(before);
  }
  const bool ready = child_->AwaitOutput("event=ready");
  INFO(child_->Output());
  REQUIRE(ready);
}

Ended Daemon::Stop() {
  child_->Signal(SIGTERM);
  return child_->Wait();
}

Ended Run(const std::vector<std::string>& arguments, const std::vector<std::string>& variables) {
  Child child(arguments, UniqueOutput(), variables);
  return child.Wait();
}

}  // namespace moment::e2e
