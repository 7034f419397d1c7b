#include "daemon/cli/source.h"

#include <signal.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/cli/admin_client.h"
#include "daemon/cli/daemon_source.h"
#include "daemon/cli/file_source.h"
#include "daemon/cli/state_lock.h"

namespace moment::cli {
namespace {

// flock has no timeout.
constexpr absl::Duration kLockRetryInterval = absl::Milliseconds(20);

// `state_directory`: "" for all that the daemon has.
absl::StatusOr<std::unique_ptr<Source>> OpenSocket(const std::string& socket_path,
                                                   const CommonOptions& options,
                                                   const std::string& state_directory) {
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<AdminClient> client,
                          AdminClient::Connect(socket_path, options.timeout()));
  return std::unique_ptr<Source>(
      std::make_unique<DaemonSource>(std::move(client), state_directory));
}

std::string HolderText(const StateLock& lock) {
  return lock.holder_pid == 0 ? "a daemon" : absl::StrCat("momentd (pid ", lock.holder_pid, ")");
}

// Live files change under a reader: whoever holds the lock is asked instead.
absl::StatusOr<std::unique_ptr<Source>> OpenHolder(const std::string& state_directory,
                                                   const StateLock& lock, CommonOptions options,
                                                   Console& console) {
  options.socket_directory = lock.holder_socket_directory;
  const std::string socket_path = options.SocketPath(kAdminSocketName);
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<Source> source,
                          OpenSocket(socket_path, options, state_directory));
  Note(console, absl::StrCat(state_directory, " is in use by ", HolderText(lock), ": asking it at ",
                             socket_path));
  return source;
}

// A holder that ends empties LOCK first; one that was killed leaves it as it is.
bool HolderLives(const StateLock& lock) {
  return lock.holder_pid > 0 &&
         (::kill(static_cast<pid_t>(lock.holder_pid), 0) == 0 || errno == EPERM);
}

absl::Status Locked(const std::string& state_directory, const StateLock& lock,
                    const absl::Status& why) {
  const std::string context =
      absl::StrCat(state_directory, " is locked by ", HolderText(lock), ", which does not answer");
  return why.ok() ? absl::UnavailableError(absl::StrCat(
                        context, " and whose last writes have not landed: try again later"))
                  : base::WithContext(why, context);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> OpenDaemon(const CommonOptions& options) {
  return OpenSocket(options.SocketPath(kAdminSocketName), options, "");
}

absl::StatusOr<std::unique_ptr<Source>> OpenStateDirectory(const std::string& state_directory,
                                                           const CommonOptions& options,
                                                           Context& context) {
  const absl::Time deadline = absl::Now() + options.timeout();
  while (true) {
    MOMENT_ASSIGN_OR_RETURN(StateLock lock, TryLockShared(state_directory));
    if (lock.shared.valid()) {
      return FileSource::Create(state_directory, std::move(lock.shared));
    }
    absl::Status why;
    if (!lock.holder_socket_directory.empty()) {
      absl::StatusOr<std::unique_ptr<Source>> source =
          OpenHolder(state_directory, lock, options, context.console);
      if (!absl::IsUnavailable(source.status())) {
        return source;
      }
      why = source.status();
    }
    if (HolderLives(lock) || absl::Now() >= deadline) {
      return Locked(state_directory, lock, why);
    }
    if (context.cancellation.AwaitFor(kLockRetryInterval)) {
      return absl::CancelledError(absl::StrCat("interrupted while waiting for ", state_directory));
    }
  }
}

absl::StatusOr<std::unique_ptr<Source>> OpenPath(const PathTarget& target,
                                                 const CommonOptions& options, Context& context) {
  if (!target.state_directory.empty()) {
    return OpenStateDirectory(target.state_directory, options, context);
  }
  return FileSource::Create(target.path, base::UniqueFd());
}

absl::StatusOr<std::unique_ptr<Source>> OpenByName(const std::string& state_directory,
                                                   const CommonOptions& options, Context& context) {
  if (state_directory.empty()) {
    return OpenDaemon(options);
  }
  MOMENT_ASSIGN_OR_RETURN(const PathTarget target, ClassifyPath(state_directory));
  if (target.kind != PathTarget::Kind::kStateDirectory) {
    return absl::InvalidArgumentError(
        absl::StrCat("--state-dir ", state_directory, " is not a state directory"));
  }
  return OpenPath(target, options, context);
}

}  // namespace moment::cli
