#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace moment::config {

// Everything that can be configured, resolved. Defaults stand in the declarations alone.
struct Config {
  std::vector<std::string> state_directories;
  std::string socket_directory;
  uint32_t socket_directory_mode = 0;
  uint32_t socket_mode = 0;
  uint32_t admin_socket_mode = 0;
  std::string socket_group;  // name or number; "" leaves the group alone
  std::vector<uint32_t> allowed_uids;
  std::vector<uint32_t> allowed_gids;
  uint32_t state_file_mode = 0;
  uint32_t state_directory_mode = 0;
  bool allow_volatile = false;
  bool allow_unknown_file_system = false;
  uint64_t host_memory_bytes = 0;
  uint32_t max_saves = 0;
  std::string io_engine;  // "auto", "io_uring" or "threads"
  uint32_t io_depth = 0;
  uint32_t io_threads = 0;
  uint32_t worker_threads = 0;    // 0: one a core
  std::vector<std::string> gpus;  // {"auto"}, {"none"} or UUIDs
  uint64_t gpu_staging_bytes = 0;
  uint32_t gpu_slots = 0;
  uint32_t ring_slots = 0;
  uint64_t ring_slot_bytes = 0;
  std::chrono::milliseconds stall_after{0};
  std::chrono::milliseconds lease{0};
  std::chrono::milliseconds drain_timeout{0};
  std::string log_level;
  std::string log_format;
  std::string health_listen;   // "" for none
  std::string metrics_listen;  // "" for none
};

// One declaration per option: the key in the file, MOMENTD_<NAME> in the environment, --<name> on
// the command line and the documentation follow from it.
struct Option {
  const char* name;      // "state_dir"
  const char* fallback;  // the default, as it is written in the file
  const char* form;      // "directory", "size", ...
  const char* help;      // whole sentences
  bool list;             // may be given several times, or with commas
  bool reloadable;       // SIGHUP takes a new value
  absl::Status (*set)(Config& config, absl::string_view value);
};

std::span<const Option> Options();
// nullptr if there is none.
const Option* FindOption(absl::string_view name);
// The declared name nearest to a misspelt one.
absl::string_view NearestOption(absl::string_view name);

std::string FlagName(const Option& option);         // "--state-dir"
std::string EnvironmentName(const Option& option);  // "MOMENTD_STATE_DIR"

// config/momentd.conf and docs/reference/config.md, from the declarations.
std::string SampleFile();
std::string ReferencePage();

}  // namespace moment::config
