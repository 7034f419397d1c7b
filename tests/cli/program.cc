#include "tests/cli/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <stdexcept>

namespace moment::cli {
namespace {

struct Pipe {
  base::UniqueFd read;
  base::UniqueFd write;
};

Pipe MakePipe() {
  int fds[2];
  if (::pipe2(fds, O_CLOEXEC) != 0) {
    throw std::runtime_error("no pipe");
  }
  return {base::UniqueFd(fds[0]), base::UniqueFd(fds[1])};
}

// True at the end of the stream.
bool ReadSome(int fd, std::string& text) {
  char buffer[4096];
  const ssize_t length = ::read(fd, buffer, sizeof(buffer));
  if (length > 0) {
    text.append(buffer, static_cast<size_t>(length));
  }
  return length == 0 || (length < 0 && errno != EINTR);
}

}  // namespace

// posix_spawn and not fork: this process has threads of gRPC, whose fork handlers can wait for
// ever.
Program::Program(const std::vector<std::string>& arguments, const std::string& stdout_path) {
  Pipe out = MakePipe();
  Pipe err = MakePipe();
  std::vector<char*> argv;
  for (const std::string& argument : arguments) {
    argv.push_back(const_cast<char*>(argument.c_str()));
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (stdout_path.empty()) {
    ::posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  } else {
    ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, stdout_path.c_str(), O_WRONLY, 0);
  }
  ::posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
  const int error = ::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    pid_ = -1;
    throw std::runtime_error("cannot start " + arguments[0]);
  }
  out_ = std::move(out.read);
  err_ = std::move(err.read);
}

Program::~Program() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
}

void Program::Signal(int signal) { ::kill(pid_, signal); }

ProgramResult Program::Wait() {
  ProgramResult result;
  while (out_.valid() || err_.valid()) {
    pollfd polled[] = {{.fd = out_.get(), .events = POLLIN, .revents = 0},
                       {.fd = err_.get(), .events = POLLIN, .revents = 0}};
    ::poll(polled, 2, -1);
    if (polled[0].revents != 0 && ReadSome(out_.get(), result.out)) {
      out_.Reset();
    }
    if (polled[1].revents != 0 && ReadSome(err_.get(), result.err)) {
      err_.Reset();
    }
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return result;
}

std::vector<std::string> MomentctlCommand(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), MOMENTCTL_PATH);
  return arguments;
}

ProgramResult RunMomentctl(std::vector<std::string> arguments, const std::string& stdout_path) {
  return Program(MomentctlCommand(std::move(arguments)), stdout_path).Wait();
}

}  // namespace moment::cli
