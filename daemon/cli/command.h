#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/cli/cancellation.h"
#include "daemon/cli/console.h"
#include "daemon/cli/exit_code.h"
#include "daemon/cli/target.h"

namespace moment::cli {

inline constexpr const char* kDefaultSocketDirectory = "/run/momentd";
inline constexpr const char* kSocketDirectoryVariable = "MOMENTD_SOCKET_DIR";
inline constexpr const char* kAdminSocketName = "admin.sock";
inline constexpr const char* kTrainerSocketName = "momentd.sock";

// Options that several subcommands have.
struct CommonOptions {
  bool json = false;
  std::string socket_directory;  // "": not said
  double timeout_seconds = 10;

  absl::Duration timeout() const { return absl::Seconds(timeout_seconds); }
  // As said by flag or environment, else the default.
  std::string SocketPath(const std::string& socket_name) const;
};

// Names a store, or what else a positional argument may name.
struct TargetOptions {
  std::string text;
  std::string job;
  std::string role;
  uint32_t rank = 0;
  CLI::Option* rank_option = nullptr;

  // INVALID_ARGUMENT for halves of a name, or a name and a positional argument.
  absl::StatusOr<Target> Resolve() const;
};

// What a subcommand works with while it runs.
struct Context {
  Console& console;
  Cancellation& cancellation;
};

// The outcome: a status where the command could not do its work, else its exit code.
using Outcome = absl::StatusOr<ExitCode>;

// Set by the subcommand that was named.
struct Invocation {
  std::function<Outcome(Context&)> run;
};

void AddCommonOptions(CLI::App& command, CommonOptions& options);
void AddTargetOptions(CLI::App& command, TargetOptions& options, const std::string& what);
void AddStateDirectoryOption(CLI::App& command, std::string& state_directory);

// One file each.
void AddStatusCommand(CLI::App& app, Invocation& invocation);
void AddListCommand(CLI::App& app, Invocation& invocation);
void AddInspectCommand(CLI::App& app, Invocation& invocation);
void AddVerifyCommand(CLI::App& app, Invocation& invocation);
void AddDropCommand(CLI::App& app, Invocation& invocation);
void AddHealthCommand(CLI::App& app, Invocation& invocation);
void AddDoctorCommand(CLI::App& app, Invocation& invocation);
void AddSharingPeerCommand(CLI::App& app, Invocation& invocation);

// Parses, runs and reports. `arguments` are without the program's name.
int RunCommandLine(const std::vector<std::string>& arguments, Context& context);

}  // namespace moment::cli
