#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/config/options.h"

namespace moment::config {

// What the program is asked to do beside serving.
enum class Action {
  kServe,
  kHelp,
  kVersion,
  kCheckConfig,
  kPrintConfig,
  kPrintSampleConfig,
  kPrintConfigReference,
};

// Collects option values from flags, environment, file and defaults, and resolves them in this
// order. Not thread-safe.
class Sources {
 public:
  // Arguments without the program's name.
  absl::Status ReadFlags(const std::vector<std::string>& arguments);
  // "NAME=value" entries; those that do not begin with MOMENTD_ are not ours.
  absl::Status ReadEnvironment(const std::vector<std::string>& variables);
  // The file that flags or environment name, else the default one if it exists.
  absl::Status ReadFile();
  absl::Status ReadFileText(absl::string_view text, const std::string& path);

  absl::StatusOr<Config> Resolve() const;

  Action action() const { return action_; }
  // Unknown MOMENTD_ variables, a sentence each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  // "key = value  # source" lines, in the order of the declarations.
  std::string Print() const;

 private:
  struct Value {
    std::vector<std::string> texts;
    std::string source;  // "flag --state-dir", "/etc/momentd/momentd.conf:12", ...
  };
  using Layer = std::map<std::string, Value>;  // by option name

  absl::Status ReadFlag(const std::vector<std::string>& arguments, size_t& index);
  absl::Status ReadFileLine(absl::string_view line, const std::string& place);
  Value Effective(const Option& option) const;

  Action action_ = Action::kServe;
  Layer flags_;
  Layer environment_;
  Layer file_;
  std::string config_flag_;
  std::string config_variable_;
  bool config_from_flag_ = false;
  std::vector<std::string> warnings_;
};

std::string HelpText();

}  // namespace moment::config
