#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "daemon/store/commit_rules.h"
#include "tests/store/store_driver.h"

namespace moment::store {

// What a store owes after a crash, kept outside it: commits that were asked for, those that were
// acknowledged, and those whose records the rules still promise.
class CrashModel {
 public:
  // Before the call that makes the commit.
  void Attempt(const ExpectedCommit& commit);
  void Acknowledge(uint64_t id);
  // Before the call: from here on only what it keeps is promised.
  void Arrive(uint64_t sequence);
  // The id that a call without a Begin takes; Begin's are seen in the mutation.
  uint64_t NextId() const { return last_id_ + 1; }
  void TakeId(uint64_t id) { last_id_ = id; }

  // The expected content of an attempted commit; null if there is none of this id.
  const ExpectedCommit* Find(uint64_t id) const;
  uint64_t acknowledged() const { return acknowledged_; }

  // After the call that made the pin.
  void AcknowledgePin(std::shared_ptr<const PinnedCommit> pin, const Store& store);
  // Before the call that drops it.
  void DropPin(const std::string& id) { pins_.at(id).owed = false; }
  // Empty if each pin that is owed is whole on this disk, of which no store is open, and no file
  // that was ever pinned holds other bytes.
  std::string CheckPins(io::SimulatedDisk& disk) const;

  // Empty if a store that was opened after a crash is what it may be: at a commit, whole, not older
  // than the last acknowledged one; every live commit with its bytes; the promised ones live. No
  // pin is left, no file that nothing needs, and no file that was ever pinned holds other bytes.
  std::string Check(io::SimulatedDisk& disk, Store& store) const;

  // After a reopening: commits that were lost will never be seen again, pins are dropped.
  void Settle(Store& store);

 private:
  std::string CheckNewest(io::SimulatedDisk& disk, const Store& store) const;
  std::string CheckLive(io::SimulatedDisk& disk, const Store& store) const;
  std::string CheckPromised(const Store& store) const;
  std::string CheckNothingPinned(io::SimulatedDisk& disk, const Store& store) const;
  std::string CheckPinnedFiles(io::SimulatedDisk& disk) const;

  struct ExpectedPin {
    std::shared_ptr<const PinnedCommit> pin;
    ExpectedCommit commit;
    std::string directory;  // of the store
    bool owed = false;
  };

  std::map<uint64_t, ExpectedCommit> attempted_;  // by id
  std::vector<RecordFacts> promised_;
  std::map<std::string, ExpectedPin> pins_;  // by id, those that were dropped too
  uint64_t acknowledged_ = 0;                // id; 0: none
  uint64_t last_id_ = 0;
};

}  // namespace moment::store
