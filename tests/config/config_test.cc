#include <fstream>
#include <sstream>

#include "daemon/config/options.h"
#include "daemon/config/sources.h"
#include "daemon/config/values.h"
#include "tests/support/catch.h"

namespace moment::config {
namespace {

bool Names(const absl::Status& status, const std::string& text) {
  return status.message().find(text) != absl::string_view::npos;
}

std::string FileText(const std::string& path) {
  std::ifstream stream(path);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

TEST_CASE("Config: the defaults resolve", "[config]") {
  const Config config = Sources().Resolve().value();
  REQUIRE(config.state_directories == std::vector<std::string>{"/var/lib/momentd"});
  REQUIRE(config.socket_directory_mode == 0750);
  REQUIRE(config.socket_mode == 0660);
  REQUIRE(config.host_memory_bytes == uint64_t{1} << 30);
  REQUIRE(config.stall_after == std::chrono::seconds(30));
}

TEST_CASE("Config: flags beat the environment, the environment beats the file", "[config]") {
  Sources sources;
  REQUIRE(sources.ReadFileText("io_depth = 2\nio_threads = 2\nworker_threads = 2", "f").ok());
  REQUIRE(sources.ReadEnvironment({"MOMENTD_IO_DEPTH=3", "MOMENTD_IO_THREADS=3"}).ok());
  REQUIRE(sources.ReadFlags({"--io-depth", "4"}).ok());
  const Config config = sources.Resolve().value();
  REQUIRE(config.io_depth == 4);
  REQUIRE(config.io_threads == 3);
  REQUIRE(config.worker_threads == 2);
}

TEST_CASE("Config: a list of one place replaces that of the place below it", "[config]") {
  Sources sources;
  REQUIRE(sources.ReadFileText("state_dir = /a\nstate_dir = /b, /c", "f").ok());
  REQUIRE(sources.Resolve().value().state_directories ==
          std::vector<std::string>{"/a", "/b", "/c"});
  REQUIRE(sources.ReadFlags({"--state-dir=/x", "--state-dir", "/y/"}).ok());
  REQUIRE(sources.Resolve().value().state_directories == std::vector<std::string>{"/x", "/y"});
}

TEST_CASE("Config: GPUs are auto, none or UUIDs", "[config]") {
  REQUIRE(Sources().Resolve().value().gpus == std::vector<std::string>{"auto"});
  Sources sources;
  REQUIRE(sources.ReadFileText("gpu = GPU-1, GPU-2\ngpu_staging = 64MiB\ngpu_slots = 2", "f").ok());
  const Config config = sources.Resolve().value();
  REQUIRE(config.gpus == std::vector<std::string>{"GPU-1", "GPU-2"});
  REQUIRE(config.gpu_staging_bytes == uint64_t{64} << 20);
  REQUIRE(config.gpu_slots == 2);
  REQUIRE(sources.ReadFlags({"--gpu", "none"}).ok());
  REQUIRE(sources.Resolve().value().gpus == std::vector<std::string>{"none"});
  REQUIRE(sources.ReadFlags({"--gpu", "GPU-1"}).ok());
  REQUIRE(Names(sources.Resolve().status(), "stand alone"));
  Sources wrong;
  REQUIRE(wrong.ReadEnvironment({"MOMENTD_GPU=0"}).ok());
  REQUIRE(Names(wrong.Resolve().status(), "UUID"));
}

TEST_CASE("Config: an unknown key names its line and the nearest option", "[config]") {
  Sources sources;
  const absl::Status status = sources.ReadFileText("# note\nhost_memroy = 1GiB", "momentd.conf");
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Names(status, "momentd.conf:2"));
  REQUIRE(Names(status, "host_memory"));
}

TEST_CASE("Config: an unknown flag names the nearest one", "[config]") {
  Sources sources;
  const absl::Status status = sources.ReadFlags({"--state-dri", "/a"});
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Names(status, "--state-dir"));
}

TEST_CASE("Config: an unknown variable is a warning, another part's variable is not", "[config]") {
  Sources sources;
  REQUIRE(sources.ReadEnvironment({"MOMENTD_IODEPTH=1", "MOMENTD_SOCKET=/s", "HOME=/"}).ok());
  REQUIRE(sources.warnings().size() == 1);
  REQUIRE(sources.warnings()[0].find("MOMENTD_IO_DEPTH") != std::string::npos);
}

TEST_CASE("Config: a value that does not parse names option, source and form", "[config]") {
  Sources sources;
  REQUIRE(sources.ReadEnvironment({"MOMENTD_HOST_MEMORY=lots"}).ok());
  const absl::Status status = sources.Resolve().status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Names(status, "host_memory (environment MOMENTD_HOST_MEMORY)"));
  REQUIRE(Names(status, "1.5GiB"));
}

TEST_CASE("Config: a key given twice, a flag without its value and a bare word are refused",
          "[config]") {
  REQUIRE_FALSE(Sources().ReadFileText("lease = 1s\nlease = 2s", "f").ok());
  REQUIRE_FALSE(Sources().ReadFileText("lease 1s", "f").ok());
  REQUIRE_FALSE(Sources().ReadFlags({"--lease"}).ok());
  REQUIRE_FALSE(Sources().ReadFlags({"--lease=1s", "--lease=2s"}).ok());
  REQUIRE_FALSE(Sources().ReadFlags({"serve"}).ok());
}

TEST_CASE("Config: a bool flag needs no value and takes one", "[config]") {
  Sources sources;
  REQUIRE(sources.ReadFlags({"--allow-unknown-file-system", "--allow-volatile=false"}).ok());
  const Config config = sources.Resolve().value();
  REQUIRE(config.allow_unknown_file_system);
  REQUIRE_FALSE(config.allow_volatile);
}

TEST_CASE("Config: a comment begins at a line's start or after a space", "[config]") {
  Sources sources;
  REQUIRE(sources.ReadFileText("  # all\nsocket_dir = /run/a#b  # mine", "f").ok());
  REQUIRE(sources.Resolve().value().socket_directory == "/run/a#b");
}

TEST_CASE("Config: a file that was named and is missing is an error", "[config]") {
  Sources sources;
  REQUIRE(sources.ReadFlags({"--config", "/nonexistent/momentd.conf"}).ok());
  REQUIRE(Names(sources.ReadFile(), "/nonexistent/momentd.conf"));
}

TEST_CASE("Config: print-config shows each value with its source", "[config]") {
  Sources sources;
  REQUIRE(sources.ReadFileText("lease = 5s", "m.conf").ok());
  REQUIRE(sources.ReadFlags({"--io-depth=7"}).ok());
  const std::string text = sources.Print();
  REQUIRE(text.find("lease = 5s  # m.conf:1\n") != std::string::npos);
  REQUIRE(text.find("io_depth = 7  # flag --io-depth\n") != std::string::npos);
  REQUIRE(text.find("stall_after = 30s  # default\n") != std::string::npos);
}

TEST_CASE("Config: every declared option can be set from its own default", "[config]") {
  Sources sources;
  REQUIRE(sources.ReadFileText(SampleFile(), "sample").ok());
  REQUIRE(sources.Resolve().ok());
  for (const Option& option : Options()) {
    INFO(option.name);
    REQUIRE(SampleFile().find(std::string("\n") + option.name + " =") != std::string::npos);
  }
}

TEST_CASE("Config: config/momentd.conf and the reference page follow the declarations",
          "[config]") {
  REQUIRE(FileText(MOMENT_SOURCE_DIR "/config/momentd.conf") == SampleFile());
  REQUIRE(FileText(MOMENT_SOURCE_DIR "/docs/reference/config.md") == ReferencePage());
}

TEST_CASE("Config: sizes, durations, modes and addresses parse, and nonsense does not",
          "[config]") {
  REQUIRE(ParseBytes("1.5GiB").value() == 1610612736);
  REQUIRE(ParseBytes("2 MB").value() == 2000000);
  REQUIRE(ParseDuration("1.5s").value() == std::chrono::milliseconds(1500));
  REQUIRE(ParseMode("0640").value() == 0640);
  REQUIRE(ParseListenAddress("[::1]:80").ok());
  REQUIRE(ParseListenAddress("").value().empty());
  for (const char* text : {"", "GiB", "1XiB", "-1", "1.2.3", "nan"}) {
    INFO(text);
    REQUIRE_FALSE(ParseBytes(text).ok());
    REQUIRE_FALSE(ParseDuration(text).ok());
  }
  for (const char* text : {"", "8", "07777", "rw"}) {
    REQUIRE_FALSE(ParseMode(text).ok());
  }
  for (const char* text : {"localhost:80", "127.0.0.1", "127.0.0.1:99999", "[::1:80"}) {
    REQUIRE_FALSE(ParseListenAddress(text).ok());
  }
}

}  // namespace
}  // namespace moment::config
