#include "daemon/state_directories.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"

namespace moment {
namespace {

absl::Status CheckFileSystem(const std::string& path, const io::DirectoryProbe& probe,
                             const config::Config& config) {
  if (probe.is_network) {
    return absl::InvalidArgumentError(
        absl::StrCat("state directory ", path, " is on the network file system ", probe.file_system,
                     ": state needs a local drive"));
  }
  if (probe.is_volatile && !config.allow_volatile) {
    return absl::InvalidArgumentError(
        absl::StrCat("state directory ", path, " is on ", probe.file_system,
                     ", whose content is lost with the machine or the container: set "
                     "allow_volatile = true to accept that"));
  }
  if (!probe.is_known && !config.allow_unknown_file_system) {
    return absl::InvalidArgumentError(
        absl::StrCat("state directory ", path, " is on ", probe.file_system,
                     ", for which crash safety was not checked: set allow_unknown_file_system = "
                     "true to accept that a power loss may cost commits"));
  }
  return absl::OkStatus();
}

absl::StatusOr<session::StateDirectory> Probe(const std::string& path, const config::Config& config,
                                              io::FileSystem& files) {
  MOMENT_RETURN_IF_ERROR(io::CreateDirectories(files, path, config.state_directory_mode));
  session::StateDirectory directory;
  directory.path = path;
  directory.file_permissions = config.state_file_mode;
  directory.directory_permissions = config.state_directory_mode;
  MOMENT_ASSIGN_OR_RETURN(directory.probe, io::ProbeDirectory(path));
  MOMENT_RETURN_IF_ERROR(CheckFileSystem(path, directory.probe, config));
  return directory;
}

io::EngineKind KindOf(const std::string& name) {
  if (name == "io_uring") {
    return io::EngineKind::kIoUring;
  }
  return name == "threads" ? io::EngineKind::kThreads : io::EngineKind::kAuto;
}

void Log(const session::StateDirectory& directory) {
  spdlog::info("event=state_directory path={} file_system={} engine={} direct_io={}",
               base::Quoted(directory.path), directory.probe.file_system, directory.engine->name(),
               directory.probe.direct_io);
  if (!directory.engine_reason.empty()) {
    spdlog::warn("event=engine_fallback path={} engine={} reason={}", base::Quoted(directory.path),
                 directory.engine->name(), base::Quoted(directory.engine_reason));
  }
  if (!directory.probe.direct_io) {
    spdlog::warn("event=no_direct_io path={} reason={}", base::Quoted(directory.path),
                 base::Quoted(directory.probe.direct_io_reason));
  }
  if (directory.probe.is_volatile) {
    spdlog::warn("event=volatile path={} file_system={} effect={}", base::Quoted(directory.path),
                 directory.probe.file_system,
                 base::Quoted("state is lost with the machine or the container"));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<StateDirectories>> StateDirectories::Open(
    const config::Config& config, io::FileSystem& files) {
  std::unique_ptr<StateDirectories> result(new StateDirectories());
  io::EngineOptions options;
  options.kind = KindOf(config.io_engine);
  options.depth = std::max(config.io_depth, io::EngineOptions().depth);
  options.threads = config.io_threads;
  for (const std::string& path : config.state_directories) {
    MOMENT_RETURN_IF_ERROR(io::CreateDirectories(files, path, config.state_directory_mode));
    StateLockOptions lock_options;
    lock_options.state_directory = path;
    lock_options.socket_directory = config.socket_directory;
    MOMENT_ASSIGN_OR_RETURN(StateLock lock, StateLock::Acquire(lock_options));
    options.held_fds.push_back(lock.fd());
    result->locks_.push_back(std::move(lock));
  }
  for (const std::string& path : config.state_directories) {
    MOMENT_ASSIGN_OR_RETURN(session::StateDirectory directory, Probe(path, config, files));
    MOMENT_ASSIGN_OR_RETURN(io::CreatedEngine created, io::CreateEngine(options));
    directory.engine = created.engine.get();
    directory.engine_reason = std::move(created.reason);
    result->engines_.push_back(std::move(created.engine));
    Log(directory);
    result->directories_.push_back(std::move(directory));
  }
  return result;
}

}  // namespace moment
