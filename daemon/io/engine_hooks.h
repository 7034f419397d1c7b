#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "daemon/io/io_engine.h"
#include "daemon/io/transfer_progress.h"

namespace moment::io {

// Where tests put themselves between an engine and the system; the defaults change nothing.
struct EngineHooks {
  // The largest single move. A multiple of kIoAlignment where files are direct.
  uint64_t max_piece_bytes = kMaxPieceBytes;
  // Sees the result of every move (bytes, or a negative errno) and returns the one that the engine
  // shall believe. Runs on the engine's threads.
  std::function<int64_t(const Transfer&, int64_t result)> result;
  // An errno with which the set-up of a ring with these IORING_SETUP flags fails; 0: asks the
  // system.
  std::function<int(uint32_t flags)> refuse_ring;
  // Entries of the ring's two queues; 0: enough for the depth, so that neither overflows.
  uint32_t ring_entries = 0;
};

absl::StatusOr<CreatedEngine> CreateEngineWithHooks(const EngineOptions& options,
                                                    const EngineHooks& hooks);

}  // namespace moment::io
