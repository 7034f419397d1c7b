#include "daemon/config/options.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "daemon/base/errors.h"
#include "daemon/config/values.h"

namespace moment::config {
namespace {

template <std::string Config::*field>
absl::Status SetText(Config& config, absl::string_view value) {
  config.*field = std::string(value);
  return absl::OkStatus();
}

template <std::string Config::*field>
absl::Status SetPath(Config& config, absl::string_view value) {
  if (value.empty() || value[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not an absolute path"));
  }
  config.*field = std::string(value);
  return absl::OkStatus();
}

absl::Status AddStateDirectory(Config& config, absl::string_view value) {
  if (value.empty() || value[0] != '/') {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not an absolute path"));
  }
  const std::string path(value.size() > 1
                             ? absl::string_view(value.substr(0, value.find_last_not_of('/') + 1))
                             : value);
  if (std::find(config.state_directories.begin(), config.state_directories.end(), path) !=
      config.state_directories.end()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\" is given twice"));
  }
  config.state_directories.push_back(path);
  return absl::OkStatus();
}

// "auto" and "none" stand alone.
absl::Status AddGpu(Config& config, absl::string_view value) {
  const bool is_word = value == "auto" || value == "none";
  if (!is_word && !absl::StartsWith(value, "GPU-")) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", value, "\" is not auto, none or the UUID of a GPU (GPU-...)"));
  }
  if (!config.gpus.empty() &&
      (is_word || config.gpus.front() == "auto" || config.gpus.front() == "none")) {
    return absl::InvalidArgumentError("auto and none stand alone");
  }
  config.gpus.emplace_back(value);
  return absl::OkStatus();
}

template <std::vector<uint32_t> Config::*field>
absl::Status AddNumber(Config& config, absl::string_view value) {
  MOMENT_ASSIGN_OR_RETURN(const uint64_t number,
                          ParseCount(value, 0, std::numeric_limits<uint32_t>::max() - 1));
  (config.*field).push_back(static_cast<uint32_t>(number));
  return absl::OkStatus();
}

template <uint32_t Config::*field>
absl::Status SetMode(Config& config, absl::string_view value) {
  MOMENT_ASSIGN_OR_RETURN(config.*field, ParseMode(value));
  return absl::OkStatus();
}

template <bool Config::*field>
absl::Status SetBool(Config& config, absl::string_view value) {
  MOMENT_ASSIGN_OR_RETURN(config.*field, ParseBool(value));
  return absl::OkStatus();
}

template <uint32_t Config::*field, uint64_t least, uint64_t most>
absl::Status SetCount(Config& config, absl::string_view value) {
  MOMENT_ASSIGN_OR_RETURN(const uint64_t number, ParseCount(value, least, most));
  config.*field = static_cast<uint32_t>(number);
  return absl::OkStatus();
}

template <uint64_t Config::*field, uint64_t least>
absl::Status SetBytes(Config& config, absl::string_view value) {
  MOMENT_ASSIGN_OR_RETURN(config.*field, ParseBytes(value));
  if (config.*field < least) {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is below ", least, " bytes"));
  }
  return absl::OkStatus();
}

template <std::chrono::milliseconds Config::*field, int64_t least_ms>
absl::Status SetDuration(Config& config, absl::string_view value) {
  MOMENT_ASSIGN_OR_RETURN(config.*field, ParseDuration(value));
  if ((config.*field).count() < least_ms) {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is below ", least_ms, "ms"));
  }
  return absl::OkStatus();
}

template <std::string Config::*field>
absl::Status SetListen(Config& config, absl::string_view value) {
  MOMENT_ASSIGN_OR_RETURN(config.*field, ParseListenAddress(value));
  return absl::OkStatus();
}

absl::Status SetChoice(std::string& field, absl::string_view value,
                       std::initializer_list<absl::string_view> choices) {
  for (const absl::string_view choice : choices) {
    if (value == choice) {
      field = std::string(value);
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", value, "\" is not one of ", absl::StrJoin(choices, ", ")));
}

absl::Status SetEngine(Config& config, absl::string_view value) {
  return SetChoice(config.io_engine, value, {"auto", "io_uring", "threads"});
}

absl::Status SetLogLevel(Config& config, absl::string_view value) {
  return SetChoice(config.log_level, value,
                   {"trace", "debug", "info", "warn", "error", "critical", "off"});
}

absl::Status SetLogFormat(Config& config, absl::string_view value) {
  return SetChoice(config.log_format, value, {"text", "json"});
}

constexpr Option kOptions[] = {
    {"state_dir", "/var/lib/momentd", "directory",
     "Where optimizer state lives, one directory a drive. A store found in any of them is used "
     "where it is; another goes to the one with the most free space.",
     true, false, AddStateDirectory},
    {"socket_dir", "/run/momentd", "directory",
     "Where momentd.sock (trainers), admin.sock (operators) and fd.sock (descriptors) are made. "
     "The longest path of a socket is 107 bytes.",
     false, false, SetPath<&Config::socket_directory>},
    {"socket_dir_mode", "0750", "mode", "Permissions of the socket directory.", false, false,
     SetMode<&Config::socket_directory_mode>},
    {"socket_mode", "0660", "mode", "Permissions of momentd.sock and fd.sock.", false, false,
     SetMode<&Config::socket_mode>},
    {"admin_socket_mode", "0660", "mode", "Permissions of admin.sock.", false, false,
     SetMode<&Config::admin_socket_mode>},
    {"socket_group", "", "group",
     "Group, by name or number, of the socket directory and the sockets. Empty: the daemon's own.",
     false, false, SetText<&Config::socket_group>},
    {"allow_uid", "", "user number",
     "Users whose processes may connect, beside root, the daemon's own user and the members of the "
     "sockets' group.",
     true, false, AddNumber<&Config::allowed_uids>},
    {"allow_gid", "", "group number", "Groups whose members may connect, beside those.", true,
     false, AddNumber<&Config::allowed_gids>},
    {"state_file_mode", "0640", "mode", "Permissions of state files.", false, false,
     SetMode<&Config::state_file_mode>},
    {"state_dir_mode", "0750", "mode", "Permissions of directories below a state directory.", false,
     false, SetMode<&Config::state_directory_mode>},
    {"allow_volatile", "true", "bool",
     "Accept a state directory on tmpfs or overlay, whose content is lost with the machine or the "
     "container. False refuses it.",
     false, false, SetBool<&Config::allow_volatile>},
    {"allow_unknown_file_system", "false", "bool",
     "Accept a state directory on a local file system other than ext4, xfs, tmpfs and overlay. "
     "What "
     "survives a power loss there was not checked. Network file systems are always refused.",
     false, false, SetBool<&Config::allow_unknown_file_system>},
    {"host_memory", "1GiB", "size",
     "Budget of the frame pool that all stores share: what streams through, and the state that "
     "stays in memory between steps.",
     false, false, SetBytes<&Config::host_memory_bytes, uint64_t{16} << 20>},
    {"max_saves", "2", "count",
     "Commits of one store that may be pinned at once. Each pin holds, beyond the three images "
     "that "
     "stepping needs, one image of the state until it is released.",
     false, false, SetCount<&Config::max_saves, 1, 64>},
    {"io_engine", "auto", "auto, io_uring or threads",
     "How files are read and written. auto takes io_uring and, where the system refuses it, "
     "threads; the reason stands in the log and in the status.",
     false, false, SetEngine},
    {"io_depth", "16", "count", "Transfers in flight per state directory.", false, false,
     SetCount<&Config::io_depth, 1, 4096>},
    {"io_threads", "8", "count", "Threads per state directory of the threads engine.", false, false,
     SetCount<&Config::io_threads, 1, 1024>},
    {"worker_threads", "0", "count",
     "Threads for Adam on the host, checksums and copies. 0: one a core.", false, false,
     SetCount<&Config::worker_threads, 0, 1024>},
    {"gpu", "auto", "auto, none or UUID",
     "GPUs that compute, beside the processor: all that the driver shows and a trainer can share, "
     "none, or those named "
     "(GPU-..., as nvidia-smi -L prints them). Each takes a context of about 530 MiB and "
     "gpu_staging when the daemon starts.",
     true, false, AddGpu},
    {"gpu_staging", "256MiB", "size",
     "Memory of each GPU that state passes through, whatever the size of the stores.", false, false,
     SetBytes<&Config::gpu_staging_bytes, uint64_t{4} << 20>},
    {"gpu_slots", "4", "count",
     "Pieces that gpu_staging is cut into: while one is computed, others are copied.", false, false,
     SetCount<&Config::gpu_slots, 1, 64>},
    {"ring_slots", "4", "count",
     "Slots of a session's ring, through which a trainer's ordinary memory travels.", false, false,
     SetCount<&Config::ring_slots, 2, 64>},
    {"ring_slot_size", "16MiB", "size", "Bytes of one slot of the ring.", false, false,
     SetBytes<&Config::ring_slot_bytes, uint64_t{64} << 10>},
    {"stall_after", "30s", "duration",
     "A read or write older than this turns its state directory and the readiness service to "
     "NOT_SERVING. It ends nothing: steps wait.",
     false, false, SetDuration<&Config::stall_after, 10>},
    {"lease", "30s", "duration",
     "A trainer that is silent for longer loses its session. Clients renew it in a third of this.",
     false, false, SetDuration<&Config::lease, 100>},
    {"drain_timeout", "30s", "duration",
     "How long a running step may take after SIGTERM before it is dropped. The last applied step "
     "is committed in any case.",
     false, false, SetDuration<&Config::drain_timeout, 0>},
    {"log_level", "info", "trace, debug, info, warn, error, critical or off",
     "What is logged to the standard error stream.", false, true, SetLogLevel},
    {"log_format", "text", "text or json",
     "One line of key=value fields, or one JSON object, a "
     "record.",
     false, false, SetLogFormat},
    {"health_listen", "", "address:port",
     "TCP address of grpc.health.v1 and nothing else, for probes that cannot use a Unix socket. "
     "Empty: none.",
     false, false, SetListen<&Config::health_listen>},
    {"metrics_listen", "", "address:port", "TCP address of /metrics for Prometheus. Empty: none.",
     false, false, SetListen<&Config::metrics_listen>},
};

// Levenshtein distance, one row at a time.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

// `text` broken into lines of at most 98 characters, each after `prefix`.
std::string Wrapped(absl::string_view text, absl::string_view prefix) {
  std::string result;
  while (!text.empty()) {
    size_t end = std::min(text.size(), size_t{98} - prefix.size());
    if (end < text.size()) {
      end = text.rfind(' ', end);
    }
    absl::StrAppend(&result, prefix, text.substr(0, end), "\n");
    text = absl::StripAsciiWhitespace(text.substr(end));
  }
  return result;
}

}  // namespace

std::span<const Option> Options() { return kOptions; }

const Option* FindOption(absl::string_view name) {
  for (const Option& option : kOptions) {
    if (name == option.name) {
      return &option;
    }
  }
  return nullptr;
}

absl::string_view NearestOption(absl::string_view name) {
  const Option* nearest = &kOptions[0];
  for (const Option& option : kOptions) {
    if (Distance(name, option.name) < Distance(name, nearest->name)) {
      nearest = &option;
    }
  }
  return nearest->name;
}

std::string FlagName(const Option& option) {
  return absl::StrCat("--", absl::StrReplaceAll(option.name, {{"_", "-"}}));
}

std::string EnvironmentName(const Option& option) {
  return absl::StrCat("MOMENTD_", absl::AsciiStrToUpper(option.name));
}

std::string SampleFile() {
  std::string result =
      "# momentd.conf: every option with its default. Flags beat the environment, the environment\n"
      "# beats this file. Written by `momentd --print-sample-config`.\n";
  for (const Option& option : kOptions) {
    absl::StrAppend(&result, "\n", Wrapped(option.help, "# "), option.name, " =",
                    *option.fallback == '\0' ? "" : " ", option.fallback, "\n");
  }
  return result;
}

std::string ReferencePage() {
  std::string result =
      "# Configuration of momentd\n\n"
      "Every option has three spellings: a key of the configuration file, a variable of the\n"
      "environment, and a flag. Flags beat the environment, the environment beats the file, the\n"
      "file beats the defaults; a list given in one place replaces that of the places below it.\n"
      "Unknown keys and flags are errors that name the nearest option; unknown variables are\n"
      "warnings, because orchestrators set variables with any prefix.\n\n"
      "The file is `--config PATH`, else `MOMENTD_CONFIG`, else `/etc/momentd/momentd.conf` if it\n"
      "exists. It holds `key = value` lines; `#` begins a comment. `momentd --check-config` exits\n"
      "with 0 or 2, `momentd --print-config` prints each value with where it comes from, and\n"
      "`momentd --print-sample-config` writes `config/momentd.conf`.\n\n"
      "This page is written by `momentd --print-config-reference`.\n\n"
      "| option | environment | flag | default | meaning |\n|---|---|---|---|---|\n";
  for (const Option& option : kOptions) {
    absl::StrAppend(&result, "| `", option.name, "` (", option.form, option.list ? ", several" : "",
                    ") | `", EnvironmentName(option), "` | `", FlagName(option), "` | ",
                    *option.fallback == '\0' ? "" : absl::StrCat("`", option.fallback, "`"), " | ",
                    option.help, option.reloadable ? " Reloaded by SIGHUP." : "", " |\n");
  }
  return result;
}

}  // namespace moment::config
