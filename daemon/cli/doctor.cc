// momentctl doctor: what of this machine momentd would stumble over, and what to do about it.
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cuda/cuda_devices.h"
#include "daemon/base/errors.h"
#include "daemon/cli/admin_client.h"
#include "daemon/cli/command.h"
#include "daemon/cli/daemon_checks.h"
#include "daemon/cli/gpu_checks.h"
#include "daemon/cli/host_checks.h"
#include "daemon/cli/json_writer.h"
#include "daemon/cli/message_json.h"
#include "daemon/cli/pid_check.h"
#include "daemon/cli/sharing_peer.h"
#include "daemon/cli/table.h"

namespace moment::cli {
namespace {

constexpr char kDefaultStateDirectory[] = "/var/lib/momentd";
constexpr char kDaemon[] = "daemon";
constexpr absl::Duration kSharingTimeout = absl::Seconds(60);

struct DoctorOptions {
  CommonOptions common;
  std::vector<std::string> state_directories;
};

struct Word {
  const char* text;
  Colour colour;
};

Word WordFor(Verdict verdict) {
  switch (verdict) {
    case Verdict::kOk:
      return {"ok", Colour::kGreen};
    case Verdict::kWarning:
      return {"warning", Colour::kYellow};
    case Verdict::kFailure:
      return {"failure", Colour::kRed};
    case Verdict::kNotApplicable:
      return {"not_applicable", Colour::kNone};
  }
  return {"unknown", Colour::kNone};
}

void Append(Checks& checks, Checks more) {
  std::move(more.begin(), more.end(), std::back_inserter(checks));
}

void CheckStateDirectories(const DoctorOptions& options, Checks& checks) {
  if (!options.state_directories.empty()) {
    for (const std::string& directory : options.state_directories) {
      checks.push_back(CheckStateDirectory(directory));
    }
  } else if (::access(kDefaultStateDirectory, F_OK) == 0) {
    checks.push_back(CheckStateDirectory(kDefaultStateDirectory));
  } else {
    checks.push_back(NotApplicable(
        "state-directory",
        absl::StrCat("no --state-dir was given, and no ", kDefaultStateDirectory, " is there")));
  }
}

// Asks a daemon that was named, or is there.
void AskDaemon(const DoctorOptions& options, Checks& checks, PidFacts& pids) {
  const std::string socket = options.common.SocketPath(kAdminSocketName);
  if (options.common.socket_directory.empty() && ::access(socket.c_str(), F_OK) != 0) {
    checks.push_back(NotApplicable(kDaemon, "none was named by --socket-dir, and none runs here"));
    return;
  }
  const auto fail = [&](const absl::Status& status) {
    checks.push_back({kDaemon, "", Verdict::kFailure, std::string(status.message()),
                      "start momentd, or name the directory of its sockets by --socket-dir"});
  };
  const auto client = AdminClient::Connect(socket, options.common.timeout());
  if (!client.ok()) {
    fail(client.status());
    return;
  }
  const absl::StatusOr<v1::StatusResponse> status = (*client)->Status();
  if (!status.ok()) {
    fail(status.status());
    return;
  }
  Append(checks, JudgeStatus(*status));
  pids.daemon = static_cast<pid_t>(status->pid());
  pids.daemon_from_us = ListenerPid(socket);
}

GpuProbe MachineProbe() {
  GpuProbe probe;
  probe.survey = cuda::SurveyGpus;
  probe.share = [](const std::string& uuid, cuda::Sharing sharing) {
    return TrySharing(uuid, sharing, kSharingTimeout);
  };
  return probe;
}

uint64_t Count(const Checks& checks, Verdict verdict) {
  return static_cast<uint64_t>(
      std::count_if(checks.begin(), checks.end(),
                    [verdict](const Check& check) { return check.verdict == verdict; }));
}

void Print(const Checks& checks, Console& console) {
  Table table({{"CHECK"}, {"RESULT"}, {"OF"}, {"FOUND"}});
  for (const Check& check : checks) {
    const Word word = WordFor(check.verdict);
    table.AddRow({check.name, Cell(word.text, word.colour), check.subject, check.finding});
  }
  table.Print(console);
  for (const Check& check : checks) {
    if (!check.advice.empty()) {
      console.out << check.name << (check.subject.empty() ? "" : " ") << check.subject << ": "
                  << check.advice << "\n";
    }
  }
}

std::string Document(const Checks& checks) {
  JsonWriter writer;
  writer.BeginObject();
  writer.Key("schema_version");
  writer.Signed(kJsonSchemaVersion);
  writer.Key("checks");
  writer.BeginArray();
  for (const Check& check : checks) {
    writer.BeginObject();
    writer.Key("name");
    writer.String(check.name);
    writer.Key("subject");
    writer.String(check.subject);
    writer.Key("result");
    writer.String(WordFor(check.verdict).text);
    writer.Key("finding");
    writer.String(check.finding);
    writer.Key("advice");
    writer.String(check.advice);
    writer.EndObject();
  }
  writer.EndArray();
  writer.Key("failure_count");
  writer.Unsigned(Count(checks, Verdict::kFailure));
  writer.Key("warning_count");
  writer.Unsigned(Count(checks, Verdict::kWarning));
  writer.EndObject();
  return std::move(writer).Take();
}

Outcome RunDoctor(const DoctorOptions& options, Context& context) {
  Checks checks = {CheckIoUring(), CheckLockedMemory(), CheckFileLimit()};
  CheckStateDirectories(options, checks);
  Append(checks, CheckGpus(MachineProbe()));
  PidFacts pids = OwnPidFacts();
  Checks of_daemon;
  AskDaemon(options, of_daemon, pids);
  checks.push_back(JudgePids(pids));
  Append(checks, std::move(of_daemon));
  if (options.common.json) {
    context.console.out << Document(checks);
  } else {
    Print(checks, context.console);
  }
  return Count(checks, Verdict::kFailure) == 0 ? ExitCode::kFine : ExitCode::kFailed;
}

}  // namespace

void AddDoctorCommand(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* command = app.add_subcommand(
      "doctor",
      "Check what momentd needs of this machine, and say what to do; exit 1 for failures");
  AddCommonOptions(*command, options->common);
  command->add_option("--state-dir", options->state_directories,
                      absl::StrCat("State directory to check; several may be given (default ",
                                   kDefaultStateDirectory, ", if it is there)"));
  command->callback([options, &invocation] {
    invocation.run = [options](Context& context) { return RunDoctor(*options, context); };
  });
}

}  // namespace moment::cli
