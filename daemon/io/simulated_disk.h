#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"

namespace moment::io {

// A disk in memory that keeps synced and unsynced bytes apart, for tests of crash safety. File data
// is durable after kSync of the file, names after SyncDirectory of their directory. A write's
// buffer is read when the write completes, never at submission, so that a buffer changed too early
// is seen.
//
// Every state-changing operation (a write's completion, and that of each part of a short one; a
// sync, a create, rename, link, unlink, a change of permissions, an allocate, a directory sync) has
// a number, from 1. A test cuts the power before operation n: it
// and everything later, reads too, fails with UNAVAILABLE "power is off". AfterCrash then yields
// what the disk may hold.
struct SimulatedFaults {
  uint64_t seed = 0;
  bool reorder = false;          // transfers complete in a random order
  bool short_transfers = false;  // each moves a random part first
  double read_error = 0;         // odds of EIO for each
  double write_error = 0;
  double sync_error = 0;
  uint64_t capacity_bytes = UINT64_MAX;  // RESOURCE_EXHAUSTED beyond
};

class SimulatedDisk {
 public:
  explicit SimulatedDisk(const SimulatedFaults& faults = {});
  ~SimulatedDisk();

  FileSystem& files();
  IoEngine& engine();

  // Operations so far.
  uint64_t operations() const;
  // The power goes off before this operation; 0: never.
  void CutPowerBefore(uint64_t operation);
  bool power_is_off() const;
  // The power is back, as if it had never gone: what was unsynced is still there, unsynced. So a
  // cut was the end of a process, not of the machine.
  void RestorePower();
  // Fails the next transfer of this kind whose path contains `substring`, once; called n times, the
  // next n. A failed write leaves nothing; what a failed sync covered may stay volatile for ever,
  // although a later sync succeeds.
  void FailNext(IoOp op, const std::string& substring, absl::Status status);
  // Holds every transfer back until Release; for tests of overlap.
  void Hold();
  void Release();
  uint64_t held_transfers() const;

  // A new disk with power, holding what this one held durably plus a choice of the unsynced changes
  // (each 4 KiB block of an unsynced write there, absent or torn at 512 bytes; each unsynced name
  // change, change of size or permissions there or absent; of a file reset by an unsynced Allocate
  // either what was before it or what came after). Choice 0 loses everything unsynced, 1 keeps
  // everything, others are drawn from the number. In a choice the unsynced writes of one file are
  // independent of each other.
  std::unique_ptr<SimulatedDisk> AfterCrash(uint64_t choice) const;

  // Number of unsynced changes (blocks and names) AfterCrash chooses among.
  uint64_t unsynced_changes() const;

  // Direct access for tests (a path that is no file is left alone): overwrite, truncate, or flip
  // bits in a file behind the store's back.
  void Corrupt(const std::string& path, const std::function<void(std::vector<std::byte>&)>& edit);

 private:
  class Impl;
  explicit SimulatedDisk(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace moment::io
