#include "daemon/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace moment {
namespace {

// The smallest memory.max from our control group (version 2) up to its root.
uint64_t ControlGroupLimit() {
  uint64_t limit = UINT64_MAX;
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  while (std::getline(groups, line)) {
    absl::string_view path = line;
    if (!absl::ConsumePrefix(&path, "0::")) {
      continue;
    }
    for (std::string group(path);; group.resize(group.rfind('/'))) {
      std::ifstream file(absl::StrCat("/sys/fs/cgroup", group, "/memory.max"));
      std::string text;
      uint64_t bytes = 0;
      if (file >> text && absl::SimpleAtoi(text, &bytes)) {
        limit = std::min(limit, bytes);
      }
      if (group.rfind('/') == std::string::npos || group.empty()) {
        break;
      }
    }
  }
  return limit;
}

uint64_t MachineMemory() {
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

absl::Status CheckHostMemory(uint64_t host_memory_bytes) {
  const uint64_t limit = std::min(ControlGroupLimit(), MachineMemory());
  if (host_memory_bytes > limit) {
    return absl::ResourceExhaustedError(absl::StrCat("host_memory is ", host_memory_bytes,
                                                     " bytes, and this process may have ", limit,
                                                     ": lower it"));
  }
  return absl::OkStatus();
}

}  // namespace moment
