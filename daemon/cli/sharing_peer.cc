// momentctl sharing-peer: the second process of doctor's trial of sharing GPU memory.
#include "daemon/cli/sharing_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "daemon/base/errors.h"
#include "daemon/base/fd.h"
#include "daemon/cli/command.h"

namespace moment::cli {
namespace {

constexpr int kDescriptor = 3;  // of the piece, in the second process

// A child whose error stream is kept. Killed by its destructor if it still runs.
class Peer {
 public:
  ~Peer() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  absl::Status Start(std::vector<std::string> arguments, int descriptor) {
    std::array<int, 2> pipe = {};
    if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
      return base::ErrnoStatus(errno, "make", "a pipe");
    }
    errors_.Reset(pipe[0]);
    const base::UniqueFd write_end(pipe[1]);
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (std::string& argument : arguments) {
      argv.push_back(argument.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDERR_FILENO);
    if (descriptor >= 0) {
      posix_spawn_file_actions_adddup2(&actions, descriptor, kDescriptor);
    }
    const int error =
        ::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) {
      pid_ = -1;
      return base::ErrnoStatus(error, "start", "a second momentctl");
    }
    return absl::OkStatus();
  }

  // Its end: OK, or what it said.
  absl::Status Wait(absl::Time deadline) {
    std::string said;
    for (;;) {
      const int64_t left = std::max<int64_t>(absl::ToInt64Milliseconds(deadline - absl::Now()), 0);
      pollfd ready = {errors_.get(), POLLIN, 0};
      const int count = ::poll(&ready, 1, static_cast<int>(left));
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count <= 0) {
        return absl::DeadlineExceededError("the second process did not answer");
      }
      std::array<char, 4096> buffer = {};
      const ssize_t got = ::read(errors_.get(), buffer.data(), buffer.size());
      if (got <= 0) {
        break;
      }
      said.append(buffer.data(), static_cast<size_t>(got));
    }
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    if (status == 0) {
      return absl::OkStatus();
    }
    absl::string_view text = absl::StripAsciiWhitespace(said);
    absl::ConsumePrefix(&text, "momentctl: ");
    return absl::InternalError(absl::StrCat("in the second process: ", text));
  }

 private:
  base::UniqueFd errors_;
  pid_t pid_ = -1;
};

struct PeerOptions {
  std::string uuid;
  std::string handle;
};

Outcome RunPeer(const PeerOptions& options) {
  base::UniqueFd descriptor(options.handle.empty() ? kDescriptor : -1);
  MOMENT_RETURN_IF_ERROR(cuda::AnswerSharedPiece(
      options.uuid, absl::HexStringToBytes(options.handle), std::move(descriptor)));
  return ExitCode::kFine;
}

}  // namespace

absl::Status TrySharing(const std::string& uuid, cuda::Sharing sharing, absl::Duration timeout) {
  MOMENT_ASSIGN_OR_RETURN(const std::unique_ptr<cuda::SharedPiece> piece,
                          cuda::MakeSharedPiece(uuid, sharing));
  std::vector<std::string> arguments = {"momentctl", kSharingPeerCommand, uuid};
  if (sharing == cuda::Sharing::kHandle) {
    arguments.insert(arguments.end(), {"--handle", absl::BytesToHexString(piece->handle())});
  }
  Peer peer;
  MOMENT_RETURN_IF_ERROR(peer.Start(std::move(arguments), piece->fd()));
  MOMENT_RETURN_IF_ERROR(peer.Wait(absl::Now() + timeout));
  return piece->CheckAnswer();
}

void AddSharingPeerCommand(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<PeerOptions>();
  CLI::App* command = app.add_subcommand(kSharingPeerCommand, "For doctor");
  command->group("");  // hidden
  command->add_option("uuid", options->uuid, "The GPU")->required();
  command->add_option("--handle", options->handle,
                      "In hexadecimal; else descriptor 3 is the piece");
  command->callback([options, &invocation] {
    invocation.run = [options](Context&) { return RunPeer(*options); };
  });
}

}  // namespace moment::cli
