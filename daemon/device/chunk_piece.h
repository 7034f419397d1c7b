#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "daemon/device/device.h"
#include "daemon/device/kernels.h"

namespace moment::device {

// INVALID_ARGUMENT unless RunPiece can work on it: supported profile and types, pointers where the
// operation needs them, runs in order and within the chunk.
absl::Status CheckWork(const ChunkWork& work);

// The elements [begin, end) of a checked chunk, on the caller's thread. Pieces are independent.
void RunPiece(const ChunkWork& work, InstructionSet set, uint64_t begin, uint64_t end);

}  // namespace moment::device
