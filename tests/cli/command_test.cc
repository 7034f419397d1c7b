// Parsing: what is usage, help and version.
#include "tests/cli/capture.h"
#include "tests/support/catch.h"

namespace moment::cli {
namespace {

using test::ContainsSubstring;

TEST_CASE("Usage errors are exit 2, on stderr", "[cli]") {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"frobnicate"},
      {"status", "--frobnicate"},
      {"status", "extra"},
      {"status", "--timeout", "soon"},
      {"status", "--timeout", "0"},
      {"status", "--timeout", "-1"},
      {"inspect"},
      {"inspect", "a/model/0", "--job", "b", "--role", "model", "--rank", "0"},
      {"inspect", "--job", "b"},
      {"inspect", "--job", "b", "--role", "model"},
      {"inspect", "--job", "b", "--role", "model", "--rank", "-1"},
      {"verify", "--rank", "1"},
  };
  for (const std::vector<std::string>& arguments : wrong) {
    Capture capture;
    INFO(Catch::Detail::stringify(arguments));
    CHECK(capture.Run(arguments) == 2);
    CHECK(capture.out.str().empty());
    CHECK_FALSE(capture.err.str().empty());
  }
}

TEST_CASE("Help is exit 0, on stdout, and names every subcommand", "[cli]") {
  Capture capture;
  CHECK(capture.Run({"--help"}) == 0);
  for (const char* command : {"status", "list", "inspect", "verify", "health", "doctor"}) {
    CHECK_THAT(capture.out.str(), ContainsSubstring(command));
  }
  CHECK(capture.err.str().empty());
}

TEST_CASE("Every subcommand has --json and --help", "[cli]") {
  for (const char* command : {"status", "list", "inspect", "verify", "health", "doctor"}) {
    Capture capture;
    CHECK(capture.Run({command, "--help"}) == 0);
    CHECK_THAT(capture.out.str(), ContainsSubstring("--json"));
  }
}

TEST_CASE("--version prints the version", "[cli]") {
  Capture capture;
  CHECK(capture.Run({"--version"}) == 0);
  CHECK_THAT(capture.out.str(), ContainsSubstring("0.1"));
}

TEST_CASE("Results that cannot be written are a failure", "[cli]") {
  Capture capture;
  capture.out.setstate(std::ios::badbit);
  CHECK(Finish(capture.console).code() == absl::StatusCode::kInternal);
}

}  // namespace
}  // namespace moment::cli
