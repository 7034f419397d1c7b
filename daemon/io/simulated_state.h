#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "daemon/io/io_engine.h"
#include "daemon/io/simulated_disk.h"
#include "daemon/io/simulated_tree.h"

namespace moment::io {

class SimulatedFile;

// What the file system, the engine and the open files of one simulated disk share: its names and
// bytes, its power, its faults. Shared by them, so that a File may outlive its disk. Thread-safe.
class SimulatedState {
 public:
  explicit SimulatedState(const SimulatedFaults& given, SimulatedTree tree = {});

  const SimulatedFaults faults;
  mutable absl::Mutex mutex;

  // A state with power, holding what a crash leaves of this one.
  std::shared_ptr<SimulatedState> AfterCrash(uint64_t choice) const ABSL_LOCKS_EXCLUDED(mutex);

  SimulatedTree& tree() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return tree_; }
  SimulatedRandom& random() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return random_; }

  // UNAVAILABLE when the power is off.
  absl::Status CheckPower() const ABSL_SHARED_LOCKS_REQUIRED(mutex);
  // Numbers an operation that is about to change something, or cuts the power before it.
  absl::Status Count() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  // RESOURCE_EXHAUSTED when the disk has no room for so much more.
  absl::Status CheckRoom(uint64_t more_bytes, const std::string& path) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex);

  // Moves `length` bytes from transfer.progress on, or syncs, and applies the faults.
  absl::Status Move(const Transfer& transfer, uint64_t length) ABSL_LOCKS_EXCLUDED(mutex);

  uint64_t operations() const ABSL_LOCKS_EXCLUDED(mutex);
  uint64_t unsynced_changes() const ABSL_LOCKS_EXCLUDED(mutex);
  bool power_is_off() const ABSL_LOCKS_EXCLUDED(mutex);
  void CutPowerBefore(uint64_t operation) ABSL_LOCKS_EXCLUDED(mutex);
  void RestorePower() ABSL_LOCKS_EXCLUDED(mutex);
  void FailNext(IoOp op, const std::string& substring, absl::Status status)
      ABSL_LOCKS_EXCLUDED(mutex);

 private:
  struct Failure {
    IoOp op;
    std::string substring;
    absl::Status status;
  };

  // The status of an armed or drawn failure of this transfer; OK: none.
  absl::Status DrawFailure(const Transfer& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status Read(const Transfer& transfer, const SimulatedFile& file, uint64_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status Write(const Transfer& transfer, const SimulatedFile& file, uint64_t length)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  absl::Status Sync(const Transfer& transfer, const SimulatedFile& file)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);

  SimulatedRandom random_ ABSL_GUARDED_BY(mutex);
  SimulatedTree tree_ ABSL_GUARDED_BY(mutex);
  uint64_t operations_ ABSL_GUARDED_BY(mutex) = 0;
  uint64_t cut_before_ ABSL_GUARDED_BY(mutex) = 0;
  bool power_off_ ABSL_GUARDED_BY(mutex) = false;
  std::list<Failure> failures_ ABSL_GUARDED_BY(mutex);
};

}  // namespace moment::io
