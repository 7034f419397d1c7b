#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/store/faults.h"
#include "tests/store/crash_model.h"

namespace moment::store {

// A run against a store: returns early, with any status, when the power goes off, and tells the
// model what it asks for and what was acknowledged.
struct CrashScenario {
  std::string name;
  // What is there before the power may go off; empty: an empty disk.
  std::function<absl::Status(io::SimulatedDisk&, CrashModel&)> prepare;
  std::function<absl::Status(io::SimulatedDisk&, CrashModel&, const StoreFaults&)> run;
  OpenParameters reopen = SmallStore();
  uint64_t steps_more = 1;  // that a reopened store makes
};

CrashScenario FirstOpen();
// Refresh, then steps, each beginning while the commit before is pending; one of them a skip, one
// that leaves out a bucket.
CrashScenario OverlappedSteps(uint64_t commit_every, uint64_t count);
// Steps, a rollback, a change between two steps, more steps, MarkDue.
CrashScenario Rollbacks();
// An Open with more tensors and a larger blob, the Refresh of what is new, a step.
CrashScenario Superset();
// Pins of two commits, one of them pinned twice, dropped and swept between steps.
CrashScenario Pins();
// A discarding Refresh over a stepped store.
CrashScenario StartOver();

struct CrashSearch {
  uint64_t drawn_choices = 6;    // of crash states besides "lose all" and "keep all"
  uint64_t recovery_stride = 0;  // each nth crash state also has its reopening cut; 0: none
  // The process is killed and the machine goes on: a new one opens what the caches hold, and steps
  // on every second time. Then the power is cut.
  bool kill_first = false;
  io::SimulatedFaults disk;
  StoreFaults faults;  // of the store that crashes, not of the one that reopens
};

struct CrashResult {
  std::string problem;  // the first; empty if there is none
  uint64_t cuts = 0;
  uint64_t reopenings = 0;
};

// Cuts the power before every operation of the scenario (after its preparation), reopens each
// chosen crash state and compares with the model; every second time it then steps on and reopens
// once more.
CrashResult Search(const CrashScenario& scenario, const CrashSearch& search);

}  // namespace moment::store
