#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/io/file_system.h"

namespace moment::io {

enum class IoOp : uint8_t {
  kRead,
  kWrite,
  kSync,  // fdatasync of the file
};

// One transfer. The caller owns it, its file and its buffer until `done` ran; submitting allocates
// nothing. It is complete only at its full length: engines resubmit after short transfers, EINTR
// and EAGAIN, at aligned positions for a direct file, in pieces where the system moves less than
// asked.
struct Transfer {
  IoOp op = IoOp::kRead;
  File* file = nullptr;
  uint64_t offset = 0;
  std::byte* data = nullptr;
  uint64_t length = 0;  // bytes; 0 for kSync

  // Runs exactly once, on a thread of the engine (never inside Submit), and must not block. Errors
  // name the file and the offset; a read that meets the end of the file is DATA_LOSS.
  void (*done)(Transfer* transfer, absl::Status status) noexcept = nullptr;
  void* context = nullptr;

  // The engine's own.
  uint64_t progress = 0;  // bytes moved so far
  uint32_t attempts = 0;  // moves in a row that brought nothing
  uint64_t submitted_ns = 0;
  Transfer* next = nullptr;
};

// Moves bytes between files and memory; knows no format and no priority. Thread-safe. Any number of
// transfers may be submitted; what exceeds the engine's depth waits inside it, in order.
class IoEngine {
 public:
  virtual ~IoEngine() = default;  // waits for everything submitted

  virtual void Submit(Transfer* transfer) = 0;

  // "io_uring", "threads" or "simulated".
  virtual const char* name() const = 0;

  // Age of the oldest transfer that is not complete, in nanoseconds; 0 when idle. Reads atomics
  // only.
  virtual uint64_t OldestTransferNs() const = 0;
};

// Blocking forms, for everything that is not on the step path.
absl::Status Read(IoEngine& engine, File& file, uint64_t offset, std::byte* data, uint64_t length);
absl::Status Write(IoEngine& engine, File& file, uint64_t offset, const std::byte* data,
                   uint64_t length);
absl::Status Sync(IoEngine& engine, File& file);

enum class EngineKind : uint8_t { kAuto, kIoUring, kThreads };

struct EngineOptions {
  EngineKind kind = EngineKind::kAuto;
  uint32_t depth = 32;  // transfers in flight in the system
  uint32_t threads = 8;
  // Kept open (registered in the ring) until the kernel has finished this engine's last write, so
  // that a lock held through it is not free before: the lock files of the state directories.
  std::vector<int> held_fds;
};

struct CreatedEngine {
  std::unique_ptr<IoEngine> engine;
  std::string reason;  // why it is not io_uring; empty if it is, or if threads were asked for
};

// kAuto takes io_uring and, where the system refuses it (EPERM, ENOSYS, EINVAL, ENOMEM), threads,
// with the reason. An explicit kIoUring that is refused is an error.
absl::StatusOr<CreatedEngine> CreateEngine(const EngineOptions& options);

}  // namespace moment::io
