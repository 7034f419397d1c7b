#include "daemon/cli/command.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/cli/channel.h"

namespace moment::cli {
namespace {

void AddCommands(CLI::App& app, Invocation& invocation) {
  AddStatusCommand(app, invocation);
  AddListCommand(app, invocation);
  AddInspectCommand(app, invocation);
  AddVerifyCommand(app, invocation);
  AddDropCommand(app, invocation);
  AddHealthCommand(app, invocation);
  AddDoctorCommand(app, invocation);
  AddSharingPeerCommand(app, invocation);
}

int CodeOf(ExitCode code) { return static_cast<int>(code); }

// CLI11 has an exit code for each kind of error; here all of them are usage. Help and version are
// "errors" of code 0.
int ReportParseError(const CLI::App& app, const CLI::ParseError& error, Console& console) {
  const int code = app.exit(error, console.out, console.err);
  return CodeOf(code == 0 ? ExitCode::kFine : ExitCode::kUsage);
}

int Report(const Outcome& outcome, Console& console) {
  const absl::Status finished = Finish(console);
  if (!outcome.ok()) {
    Note(console, outcome.status().message());
    return CodeOf(ExitCodeOf(outcome.status()));
  }
  if (!finished.ok()) {
    Note(console, finished.message());
    return CodeOf(ExitCodeOf(finished));
  }
  return CodeOf(*outcome);
}

}  // namespace

std::string CommonOptions::SocketPath(const std::string& socket_name) const {
  const std::string directory =
      WithoutUnixScheme(socket_directory.empty() ? kDefaultSocketDirectory : socket_directory);
  return absl::StrCat(directory, directory.back() == '/' ? "" : "/", socket_name);
}

absl::StatusOr<Target> TargetOptions::Resolve() const {
  const bool named = !job.empty() || !role.empty() || rank_option->count() > 0;
  if (!named) {
    return ParseTarget(text);
  }
  if (!text.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("both ", text, " and --job, --role, --rank: give one of them"));
  }
  if (job.empty() || role.empty() || rank_option->count() == 0) {
    return absl::InvalidArgumentError("--job, --role and --rank name a store together");
  }
  Target target;
  target.kind = Target::Kind::kStore;
  target.name.set_job(job);
  target.name.set_role(role);
  target.name.set_rank(rank);
  return target;
}

void AddCommonOptions(CLI::App& command, CommonOptions& options) {
  command.add_flag("--json", options.json, "One JSON object instead of tables");
  command
      .add_option(
          "--socket-dir", options.socket_directory,
          absl::StrCat("Directory of the daemon's sockets (default ", kDefaultSocketDirectory, ")"))
      ->envname(kSocketDirectoryVariable);
  command
      .add_option("--timeout", options.timeout_seconds,
                  "Seconds to wait for a connection and for each answer")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 86400.0));
}

void AddTargetOptions(CLI::App& command, TargetOptions& options, const std::string& what) {
  command.add_option("target", options.text, what);
  command.add_option("--job", options.job, "Job of the store, where job/role/rank cannot say it");
  command.add_option("--role", options.role, "Role in the job");
  options.rank_option = command.add_option("--rank", options.rank, "Rank number");
}

void AddStateDirectoryOption(CLI::App& command, std::string& state_directory) {
  command.add_option("--state-dir", state_directory,
                     "Read this state directory instead of asking a daemon (where a daemon holds "
                     "it, that daemon is asked)");
}

int RunCommandLine(const std::vector<std::string>& arguments, Context& context) {
  CLI::App app("momentctl: look at momentd and at the optimizer state it keeps", "momentctl");
  app.set_version_flag("--version", MOMENT_VERSION);
  app.require_subcommand(1);
  Invocation invocation;
  AddCommands(app, invocation);
  // CLI11 takes the arguments last first.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::ParseError& error) {
    return ReportParseError(app, error, context.console);
  }
  return Report(invocation.run(context), context.console);
}

}  // namespace moment::cli
