#include "daemon/base/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace moment::base {
namespace {

struct Armed {
  std::string action;
  int at = 0;  // 0: at each arrival
  int arrivals = 0;
};

std::atomic<bool> any_armed{false};
absl::Mutex mutex;

std::map<std::string, Armed>& Points() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
  static auto* points = new std::map<std::string, Armed>();
  return *points;
}

std::string ActionFor(absl::string_view name) {
  absl::MutexLock lock(&mutex);
  auto found = Points().find(std::string(name));
  if (found == Points().end()) {
    return "";
  }
  Armed& armed = found->second;
  ++armed.arrivals;
  return armed.at == 0 || armed.at == armed.arrivals ? armed.action : "";
}

absl::Status Act(absl::string_view name, absl::string_view action) {
  int milliseconds = 0;
  if (action == "kill") {
    ::kill(::getpid(), SIGKILL);
  } else if (action == "exit") {
    ::_exit(1);
  } else if (action == "error") {
    return absl::InternalError(absl::StrCat("failpoint ", name));
  } else if (absl::ConsumePrefix(&action, "sleep:") && absl::SimpleAtoi(action, &milliseconds)) {
    absl::SleepFor(absl::Milliseconds(milliseconds));
  }
  return absl::OkStatus();
}

bool IsAction(absl::string_view action) {
  int milliseconds = 0;
  return action == "kill" || action == "exit" || action == "error" ||
         (absl::ConsumePrefix(&action, "sleep:") && absl::SimpleAtoi(action, &milliseconds));
}

}  // namespace

absl::Status Failpoint(absl::string_view name) {
  if (!any_armed.load(std::memory_order_relaxed)) {
    return absl::OkStatus();
  }
  const std::string action = ActionFor(name);
  return action.empty() ? absl::OkStatus() : Act(name, action);
}

absl::Status ArmFailpoints(absl::string_view specification) {
  std::map<std::string, Armed> points;
  for (absl::string_view entry : absl::StrSplit(specification, ',', absl::SkipEmpty())) {
    const std::pair<absl::string_view, absl::string_view> sides =
        absl::StrSplit(entry, absl::MaxSplits('=', 1));
    const std::pair<absl::string_view, absl::string_view> action =
        absl::StrSplit(sides.second, absl::MaxSplits('@', 1));
    Armed armed{std::string(action.first)};
    if (!IsAction(action.first) ||
        (!action.second.empty() && !absl::SimpleAtoi(action.second, &armed.at))) {
      return absl::InvalidArgumentError(
          absl::StrCat("failpoint '", entry, "': expected name=action[@n]"));
    }
    points[std::string(sides.first)] = armed;
  }
  absl::MutexLock lock(&mutex);
  any_armed.store(!points.empty(), std::memory_order_relaxed);
  Points() = std::move(points);
  return absl::OkStatus();
}

}  // namespace moment::base
