#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "daemon/io/io_engine.h"

namespace moment::pipeline {

// A class is served only when those before it have nothing to do.
enum class IoClass : uint8_t {
  kStep,        // what a waiting call needs, reads or writes
  kBackground,  // other write-back, prefetch
  kBulk,        // copies, scrub
};
inline constexpr int kIoClasses = 3;

class IoShare;

// A read or a write of any length. The caller owns it, its file and its buffer until `done` ran.
struct IoRequest {
  io::IoOp op = io::IoOp::kRead;
  io::File* file = nullptr;
  uint64_t offset = 0;
  std::byte* data = nullptr;
  uint64_t length = 0;

  // Runs once; must not block. On a thread of the engine, or inside Cancel.
  void (*done)(IoRequest* request) noexcept = nullptr;
  void* context = nullptr;
  absl::Status status;  // set before `done`: the first error; CANCELLED if Cancel came in time

  // The scheduler's own.
  IoShare* share = nullptr;
  IoClass io_class = IoClass::kStep;
  uint64_t issued = 0;
  uint32_t in_flight = 0;
  bool queued = false;
  IoRequest* previous = nullptr;
  IoRequest* next = nullptr;
};

// The queues of one store, and what it was served. Guarded by the scheduler's mutex.
class IoShare {
 private:
  friend class IoScheduler;
  struct Queue {
    IoRequest* head = nullptr;
    IoRequest* tail = nullptr;
  };
  Queue queues_[kIoClasses];
  uint64_t served_bytes_[kIoClasses] = {};
};

// One queue per state directory over its engine: bounded depth, three classes, equal shares between
// stores within a class, large requests in pieces so that the depth is used. Thread-safe. Allocates
// nothing after its construction but shares.
class IoScheduler {
 public:
  static constexpr uint64_t kPieceBytes = uint64_t{2} << 20;

  IoScheduler(io::IoEngine& engine, uint32_t depth);
  ~IoScheduler();  // everything submitted is done, all shares are closed
  IoScheduler(const IoScheduler&) = delete;
  IoScheduler& operator=(const IoScheduler&) = delete;

  IoShare* OpenShare();
  void CloseShare(IoShare* share);  // nothing of it is queued or in flight

  void Submit(IoShare* share, IoRequest* request, IoClass io_class);
  // Moves it to kStep if any of it is still queued.
  void Expedite(IoRequest* request);
  // What of it is still queued is not done; the request ends as soon as what is in flight has.
  void Cancel(IoRequest* request);

  uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  uint64_t bytes_written() const { return bytes_written_.load(std::memory_order_relaxed); }

 private:
  struct Piece : io::Transfer {
    IoScheduler* scheduler = nullptr;
    IoRequest* request = nullptr;
  };

  static void OnPieceDone(io::Transfer* transfer, absl::Status status) noexcept;
  void Finish(Piece* piece, absl::Status status);
  // Submits pieces while the depth allows; called without the lock.
  void Dispatch();
  Piece* NextPiece() ABSL_LOCKS_EXCLUDED(mutex_);
  IoRequest* Pick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Enqueue(IoRequest* request, IoClass io_class) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unqueue(IoRequest* request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t LeastServed(int io_class) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  io::IoEngine& engine_;
  std::atomic<uint64_t> bytes_read_{0};
  std::atomic<uint64_t> bytes_written_{0};
  std::vector<Piece> pieces_;
  absl::Mutex mutex_;
  io::Transfer* free_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int finishing_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<IoShare>> shares_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace moment::pipeline
