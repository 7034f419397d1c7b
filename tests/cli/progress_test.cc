#include "daemon/cli/progress.h"

#include "daemon/cli/table.h"
#include "tests/cli/capture.h"
#include "tests/support/catch.h"

namespace moment::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

TEST_CASE("ProgressText: share, rate and what is left", "[cli]") {
  CHECK(ProgressText({.done_bytes = 1 << 20, .total_bytes = 4 << 20, .elapsed_seconds = 0.5}) ==
        "1.0 MiB of 4.0 MiB (25%), 2.0 MiB/s, 1.5 s left");
  CHECK(ProgressText({.done_bytes = 4 << 20, .total_bytes = 4 << 20, .elapsed_seconds = 2}) ==
        "4.0 MiB of 4.0 MiB (100%), 2.0 MiB/s");
  CHECK(ProgressText({.done_bytes = 0, .total_bytes = 10, .elapsed_seconds = 1}) ==
        "0 B of 10 B (0%), -");
}

TEST_CASE("ProgressText: nothing to do is all done", "[cli]") {
  CHECK(ProgressText({}) == "0 B of 0 B (100%), -");
}

TEST_CASE("ProgressBar: has its width at every share", "[cli]") {
  CHECK(ProgressBar({.done_bytes = 0, .total_bytes = 8}, 10) == "[>       ]");
  CHECK(ProgressBar({.done_bytes = 4, .total_bytes = 8}, 10) == "[====>   ]");
  CHECK(ProgressBar({.done_bytes = 8, .total_bytes = 8}, 10) == "[========]");
  CHECK(ProgressBar({.done_bytes = 9, .total_bytes = 8}, 10) == "[========]");
  CHECK(ProgressBar({}, 1).empty());
}

TEST_CASE("Progress: plain lines, one in five seconds, where there is no terminal", "[cli]") {
  Capture capture;
  nanoseconds now{0};
  Progress progress(capture.console, "verify a", [&] { return now; });
  progress.Update(1, 100);
  CHECK(capture.err.str().empty());
  now += milliseconds(5000);
  progress.Update(50, 100);
  progress.Update(51, 100);
  CHECK(capture.err.str() == "verify a  50 B of 100 B (50%), 10 B/s, 5.0 s left\n");
  CHECK(capture.out.str().empty());
}

TEST_CASE("Progress: a bar on a terminal, which is taken away at the end", "[cli]") {
  Capture capture;
  capture.console.err_is_terminal = true;
  nanoseconds now{0};
  {
    Progress progress(capture.console, "verify a", [&] { return now; });
    now += milliseconds(100);
    progress.Update(50, 100);
  }
  const std::string text = capture.err.str();
  CHECK(text.rfind("\r\x1b[K[", 0) == 0);
  CHECK(text.find('\n') == std::string::npos);
  CHECK(text.substr(text.size() - 4) == "\r\x1b[K");
}

TEST_CASE("Progress: a bar never wraps a narrow terminal", "[cli]") {
  Capture capture;
  capture.console.err_is_terminal = true;
  capture.console.terminal_columns = 20;
  nanoseconds now{0};
  Progress progress(capture.console, std::string(100, 'x'), [&] { return now; });
  now += milliseconds(100);
  progress.Update(50, 100);
  const std::string text = capture.err.str();
  CHECK(Shorten(text.substr(4), 19) == text.substr(4));
}

}  // namespace
}  // namespace moment::cli
