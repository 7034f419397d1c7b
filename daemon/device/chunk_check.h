#pragma once

#include "absl/status/status.h"
#include "daemon/device/device.h"

namespace moment::device {

// INVALID_ARGUMENT naming what is wrong, unless the chunk is well formed: types that kernels exist
// for, memory and pointers where the operation needs them, runs in order and within the chunk.
// Which profiles and places a device takes, it checks itself.
absl::Status CheckChunk(const ChunkWork& work);

}  // namespace moment::device
