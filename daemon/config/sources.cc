#include "daemon/config/sources.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "daemon/base/errors.h"

namespace moment::config {
namespace {

constexpr char kDefaultFile[] = "/etc/momentd/momentd.conf";

// Variables that other parts of the project read.
constexpr const char* kOtherVariables[] = {"MOMENTD_CONFIG", "MOMENTD_FAILPOINTS",
                                           "MOMENTD_SOCKET", "MOMENTD_ADMIN_SOCKET",
                                           "MOMENTD_BINARY", "MOMENTD_LIBRARY"};

bool IsOtherVariable(absl::string_view name) {
  for (const char* other : kOtherVariables) {
    if (name == other) {
      return true;
    }
  }
  return false;
}

std::vector<std::string> Texts(const Option& option, absl::string_view value) {
  if (!option.list) {
    return {std::string(value)};
  }
  std::vector<std::string> result;
  for (absl::string_view piece : absl::StrSplit(value, ',', absl::SkipWhitespace())) {
    result.emplace_back(absl::StripAsciiWhitespace(piece));
  }
  return result;
}

// A '#' begins a comment at the start of a line or after a space; paths may hold others.
absl::string_view WithoutComment(absl::string_view line) {
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' &&
        (i == 0 || absl::ascii_isspace(static_cast<unsigned char>(line[i - 1])))) {
      return line.substr(0, i);
    }
  }
  return line;
}

bool IsBool(const Option& option) { return absl::string_view(option.form) == "bool"; }

struct ActionFlag {
  const char* flag;
  Action action;
  const char* help;
};

constexpr ActionFlag kActions[] = {
    {"--help", Action::kHelp, "Print this text."},
    {"--version", Action::kVersion, "Print the version."},
    {"--check-config", Action::kCheckConfig, "Check the configuration; exit with 0 or 2."},
    {"--print-config", Action::kPrintConfig, "Print each value and where it comes from."},
    {"--print-sample-config", Action::kPrintSampleConfig, "Print a file of all options."},
    {"--print-config-reference", Action::kPrintConfigReference, "Print the reference page."},
};

}  // namespace

absl::Status Sources::ReadFlags(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    MOMENT_RETURN_IF_ERROR(ReadFlag(arguments, i));
  }
  return absl::OkStatus();
}

absl::Status Sources::ReadFlag(const std::vector<std::string>& arguments, size_t& index) {
  const std::string& argument = arguments[index];
  for (const ActionFlag& action : kActions) {
    if (argument == action.flag) {
      action_ = action.action;
      return absl::OkStatus();
    }
  }
  if (!absl::StartsWith(argument, "--")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", argument, "\": momentd takes flags alone; see momentd --help"));
  }
  const size_t equals = argument.find('=');
  const std::string flag = argument.substr(0, equals);
  const std::string name = absl::StrReplaceAll(flag.substr(2), {{"-", "_"}});
  const Option* option = FindOption(name);
  if (option == nullptr && name != "config") {
    return absl::InvalidArgumentError(absl::StrCat("unknown flag ", flag, "; the nearest one is ",
                                                   FlagName(*FindOption(NearestOption(name)))));
  }
  std::string value = "true";
  if (equals != std::string::npos) {
    value = argument.substr(equals + 1);
  } else if (option == nullptr || !IsBool(*option)) {
    if (index + 1 == arguments.size()) {
      return absl::InvalidArgumentError(absl::StrCat("flag ", flag, " needs a value"));
    }
    value = arguments[++index];
  }
  if (option == nullptr) {
    config_flag_ = value;
    config_from_flag_ = true;
    return absl::OkStatus();
  }
  Value& entry = flags_[name];
  if (!option->list && !entry.texts.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("flag ", flag, " is given twice"));
  }
  for (std::string& text : Texts(*option, value)) {
    entry.texts.push_back(std::move(text));
  }
  entry.source = absl::StrCat("flag ", flag);
  return absl::OkStatus();
}

absl::Status Sources::ReadEnvironment(const std::vector<std::string>& variables) {
  for (const std::string& variable : variables) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(variable, absl::MaxSplits('=', 1));
    if (!absl::StartsWith(parts.first, "MOMENTD_")) {
      continue;
    }
    const std::string name = absl::AsciiStrToLower(parts.first.substr(strlen("MOMENTD_")));
    const Option* option = FindOption(name);
    if (option != nullptr) {
      environment_[name] = {Texts(*option, parts.second),
                            absl::StrCat("environment ", parts.first)};
    } else if (parts.first == "MOMENTD_CONFIG") {
      config_variable_ = parts.second;
    } else if (!IsOtherVariable(parts.first)) {
      warnings_.push_back(absl::StrCat("unknown variable ", parts.first,
                                       " of the environment is ignored; the nearest one is ",
                                       EnvironmentName(*FindOption(NearestOption(name)))));
    }
  }
  return absl::OkStatus();
}

absl::Status Sources::ReadFile() {
  const bool named = config_from_flag_ || !config_variable_.empty();
  const std::string path =
      config_from_flag_ ? config_flag_ : (named ? config_variable_ : kDefaultFile);
  if (path.empty()) {
    return absl::OkStatus();
  }
  std::ifstream stream(path);
  if (!stream) {
    if (!named && errno == ENOENT) {
      return absl::OkStatus();
    }
    return base::ErrnoStatus(errno, "read configuration file", path);
  }
  std::stringstream text;
  text << stream.rdbuf();
  return ReadFileText(text.str(), path);
}

absl::Status Sources::ReadFileText(absl::string_view text, const std::string& path) {
  int number = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    MOMENT_RETURN_IF_ERROR(ReadFileLine(line, absl::StrCat(path, ":", ++number)));
  }
  return absl::OkStatus();
}

absl::Status Sources::ReadFileLine(absl::string_view line, const std::string& place) {
  line = absl::StripAsciiWhitespace(WithoutComment(line));
  if (line.empty()) {
    return absl::OkStatus();
  }
  const size_t equals = line.find('=');
  if (equals == absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": \"", line, "\" is not of the form key = value"));
  }
  const std::string name(absl::StripAsciiWhitespace(line.substr(0, equals)));
  const Option* option = FindOption(name);
  if (option == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": unknown key ", name, "; the nearest one is ", NearestOption(name)));
  }
  Value& entry = file_[name];
  if (!option->list && !entry.source.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": ", name, " stands in ", entry.source, " already"));
  }
  for (std::string& text : Texts(*option, absl::StripAsciiWhitespace(line.substr(equals + 1)))) {
    entry.texts.push_back(std::move(text));
  }
  entry.source = place;
  return absl::OkStatus();
}

Sources::Value Sources::Effective(const Option& option) const {
  for (const Layer* layer : {&flags_, &environment_, &file_}) {
    if (const auto found = layer->find(option.name); found != layer->end()) {
      return found->second;
    }
  }
  return {Texts(option, option.fallback), "default"};
}

absl::StatusOr<Config> Sources::Resolve() const {
  Config config;
  for (const Option& option : Options()) {
    const Value value = Effective(option);
    for (const std::string& text : value.texts) {
      MOMENT_RETURN_IF_ERROR(base::WithContext(option.set(config, text),
                                               absl::StrCat(option.name, " (", value.source, ")")));
    }
  }
  if (config.state_directories.empty()) {
    return absl::InvalidArgumentError("state_dir: at least one directory is needed");
  }
  return config;
}

std::string Sources::Print() const {
  std::string result;
  for (const Option& option : Options()) {
    const Value value = Effective(option);
    absl::StrAppend(&result, option.name, " = ", absl::StrJoin(value.texts, ", "), "  # ",
                    value.source, "\n");
  }
  return result;
}

std::string HelpText() {
  std::string result =
      "momentd: owns optimizer state on this node and streams it through the device.\n\n"
      "Usage: momentd [--config FILE] [flags]\n\n";
  for (const ActionFlag& action : kActions) {
    absl::StrAppendFormat(&result, "  %-28s %s\n", action.flag, action.help);
  }
  absl::StrAppendFormat(&result, "  %-28s %s\n\n", "--config FILE", "Read options from this file.");
  for (const Option& option : Options()) {
    absl::StrAppendFormat(&result, "  %s <%s>%s\n      %s\n      Default: %s\n", FlagName(option),
                          option.form, option.list ? " (several)" : "", option.help,
                          *option.fallback == '\0' ? "none" : option.fallback);
  }
  absl::StrAppend(
      &result,
      "\nExit codes: 0 fine, 1 failed, 2 usage or configuration, 6 another daemon holds "
      "a directory,\n7 out of space or memory, 8 GPU lost.\n");
  return result;
}

}  // namespace moment::config
