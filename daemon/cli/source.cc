#include "daemon/cli/source.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/cli/admin_client.h"
#include "daemon/cli/daemon_source.h"
#include "daemon/cli/file_source.h"
#include "daemon/cli/state_lock.h"

namespace moment::cli {
namespace {

absl::StatusOr<std::unique_ptr<Source>> OpenSocket(const std::string& socket_path,
                                                   const CommonOptions& options) {
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<AdminClient> client,
                          AdminClient::Connect(socket_path, options.timeout()));
  return std::unique_ptr<Source>(std::make_unique<DaemonSource>(std::move(client)));
}

std::string HolderText(const StateLock& lock) {
  return lock.holder_pid == 0 ? "a daemon" : absl::StrCat("momentd (pid ", lock.holder_pid, ")");
}

// Live files change under a reader: whoever holds the lock is asked instead.
absl::StatusOr<std::unique_ptr<Source>> OpenHolder(const std::string& state_directory,
                                                   const StateLock& lock, CommonOptions options,
                                                   Console& console) {
  if (!lock.holder_socket_directory.empty()) {
    options.socket_directory = lock.holder_socket_directory;
  }
  const std::string socket_path = options.SocketPath(kAdminSocketName);
  Note(console, absl::StrCat(state_directory, " is in use by ", HolderText(lock), ": asking it at ",
                             socket_path));
  absl::StatusOr<std::unique_ptr<Source>> source = OpenSocket(socket_path, options);
  if (absl::IsUnavailable(source.status())) {
    return base::WithContext(source.status(),
                             absl::StrCat(state_directory, " is locked by ", HolderText(lock),
                                          ", which does not answer (if it has just ended, its "
                                          "last writes are landing: try again)"));
  }
  return source;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> OpenDaemon(const CommonOptions& options) {
  return OpenSocket(options.SocketPath(kAdminSocketName), options);
}

absl::StatusOr<std::unique_ptr<Source>> OpenStateDirectory(const std::string& state_directory,
                                                           const CommonOptions& options,
                                                           Console& console) {
  MOMENT_ASSIGN_OR_RETURN(StateLock lock, TryLockShared(state_directory));
  if (!lock.shared.valid()) {
    return OpenHolder(state_directory, lock, options, console);
  }
  return FileSource::Create(state_directory, std::move(lock.shared));
}

absl::StatusOr<std::unique_ptr<Source>> OpenPath(const PathTarget& target,
                                                 const CommonOptions& options, Console& console) {
  if (!target.state_directory.empty()) {
    return OpenStateDirectory(target.state_directory, options, console);
  }
  return FileSource::Create(target.path, base::UniqueFd());
}

absl::StatusOr<std::unique_ptr<Source>> OpenByName(const std::string& state_directory,
                                                   const CommonOptions& options, Console& console) {
  if (state_directory.empty()) {
    return OpenDaemon(options);
  }
  MOMENT_ASSIGN_OR_RETURN(const PathTarget target, ClassifyPath(state_directory));
  if (target.kind != PathTarget::Kind::kStateDirectory) {
    return absl::InvalidArgumentError(
        absl::StrCat("--state-dir ", state_directory, " is not a state directory"));
  }
  return OpenPath(target, options, console);
}

}  // namespace moment::cli
