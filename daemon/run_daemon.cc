// The life of the process: configuration, signals, exit codes.
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/signalfd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "daemon/app.h"
#include "daemon/base/errors.h"
#include "daemon/base/failpoint.h"
#include "daemon/base/fd.h"
#include "daemon/base/log_text.h"
#include "daemon/config/sources.h"
#include "daemon/log.h"
#include "daemon/service/version.h"
#include "daemon/system_notify.h"

namespace moment {
namespace {

enum ExitCode {
  kFine = 0,
  kFailed = 1,
  kUsage = 2,
  kCorruption = 5,
  kConflict = 6,
  kNoResources = 7,
  kDeviceLost = 8,
};

ExitCode ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kFine;
    case absl::StatusCode::kInvalidArgument:
      return kUsage;
    case absl::StatusCode::kDataLoss:
      return kCorruption;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kAborted:
      return kConflict;
    case absl::StatusCode::kResourceExhausted:
      return kNoResources;
    default:
      return kFailed;
  }
}

int Fail(ExitCode code, const absl::Status& status) {
  std::cerr << "momentd: " << status.message() << std::endl;
  return code;
}

absl::Status Read(config::Sources& sources, const std::vector<std::string>& arguments,
                  const std::vector<std::string>& environment) {
  if (absl::Status status = sources.ReadFlags(arguments); !status.ok()) {
    return status;
  }
  if (absl::Status status = sources.ReadEnvironment(environment); !status.ok()) {
    return status;
  }
  return sources.ReadFile();
}

// Actions that need no valid configuration; false for others.
bool Print(config::Action action) {
  switch (action) {
    case config::Action::kHelp:
      std::cout << config::HelpText();
      return true;
    case config::Action::kVersion:
      std::cout << "momentd " << service::kVersion << "\n";
      return true;
    case config::Action::kPrintSampleConfig:
      std::cout << config::SampleFile();
      return true;
    case config::Action::kPrintConfigReference:
      std::cout << config::ReferencePage();
      return true;
    default:
      return false;
  }
}

// Blocked before any thread exists, so that they come by the signalfd alone.
absl::StatusOr<base::UniqueFd> BlockSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    sigaddset(&signals, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  base::UniqueFd fd(::signalfd(-1, &signals, SFD_CLOEXEC));
  if (!fd.valid()) {
    return base::ErrnoStatus(errno, "make", "a signalfd");
  }
  return fd;
}

void Reload(const std::vector<std::string>& arguments,
            const std::vector<std::string>& environment) {
  config::Sources sources;
  absl::Status status = Read(sources, arguments, environment);
  const absl::StatusOr<config::Config> config =
      status.ok() ? sources.Resolve() : absl::StatusOr<config::Config>(status);
  if (!config.ok()) {
    spdlog::error("event=reload error={}", base::Quoted(config.status().message()));
    return;
  }
  SetLogLevel(config->log_level);
  spdlog::info("event=reload log_level={} note={}", config->log_level,
               base::Quoted("other options need a restart"));
}

// The next signal; 0 when a device is lost, which counts more.
int AwaitSignal(int signals, int lost) {
  for (;;) {
    std::array<pollfd, 2> fds = {{{lost, POLLIN, 0}, {signals, POLLIN, 0}}};
    if (::poll(fds.data(), fds.size(), -1) < 0) {
      continue;  // EINTR
    }
    if (fds[0].revents != 0) {
      return 0;
    }
    signalfd_siginfo info = {};
    if (::read(signals, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
      return static_cast<int>(info.ssi_signo);
    }
  }
}

int Serve(const config::Config& config, const std::vector<std::string>& arguments,
          const std::vector<std::string>& environment) {
  const absl::StatusOr<base::UniqueFd> signals = BlockSignals();
  if (!signals.ok()) {
    return Fail(kFailed, signals.status());
  }
  absl::StatusOr<std::unique_ptr<App>> app = App::Start(config);
  if (!app.ok()) {
    spdlog::error("event=start_failed error={}", base::Quoted(app.status().message()));
    return ExitCodeOf(app.status());
  }
  NotifySystem("READY=1");
  spdlog::info("event=ready version={} sockets={}", service::kVersion,
               base::Quoted(config.socket_directory));
  int signal = AwaitSignal(signals->get(), (*app)->lost_fd());
  while (signal == SIGHUP) {
    Reload(arguments, environment);
    signal = AwaitSignal(signals->get(), (*app)->lost_fd());
  }
  const bool is_lost = signal == 0;
  NotifySystem("STOPPING=1");
  spdlog::info("event=stopping {}",
               is_lost ? "reason=device_lost" : absl::StrCat("signal=", signal));
  const absl::Status stopped = (*app)->Stop();
  if (!stopped.ok()) {
    spdlog::critical("event=stop error={}", base::Quoted(stopped.message()));
    // Its parts wait for disks that do not answer: leave as after a kill, which loses no commit.
    std::_Exit(is_lost ? kDeviceLost : kFailed);
  }
  if (is_lost) {
    spdlog::critical("event=stopped exit={} detail={}", static_cast<int>(kDeviceLost),
                     base::Quoted("a device is lost; every applied step is committed"));
    // Its owners would call a driver that may not answer.
    std::_Exit(kDeviceLost);
  }
  app->reset();
  spdlog::info("event=stopped");
  return kFine;
}

}  // namespace

int RunDaemon(const std::vector<std::string>& arguments,
              const std::vector<std::string>& environment) {
  config::Sources sources;
  if (const absl::Status status = Read(sources, arguments, environment); !status.ok()) {
    return Fail(kUsage, status);
  }
  if (Print(sources.action())) {
    return kFine;
  }
  const absl::StatusOr<config::Config> config = sources.Resolve();
  if (!config.ok()) {
    return Fail(kUsage, config.status());
  }
  if (sources.action() == config::Action::kPrintConfig) {
    std::cout << sources.Print();
  }
  if (sources.action() != config::Action::kServe) {
    return kFine;
  }
  SetUpLog(config->log_level, config->log_format);
  for (const std::string& warning : sources.warnings()) {
    spdlog::warn("event=config warning={}", base::Quoted(warning));
  }
  if (const char* const failpoints = std::getenv("MOMENTD_FAILPOINTS")) {
    if (const absl::Status status = base::ArmFailpoints(failpoints); !status.ok()) {
      return Fail(kUsage, status);
    }
    spdlog::warn("event=failpoints specification={}", base::Quoted(failpoints));
  }
  return Serve(*config, arguments, environment);
}

}  // namespace moment
