#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace moment {

// RESOURCE_EXHAUSTED naming the limit if this many bytes cannot be had: the machine's memory, or
// the memory limit of our control group.
absl::Status CheckHostMemory(uint64_t host_memory_bytes);

}  // namespace moment
