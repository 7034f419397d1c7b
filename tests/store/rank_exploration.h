#pragma once

#include <cstdint>
#include <string>

namespace moment::store {

// Exhaustive exploration of a job's ranks over the rules of commit_rules.h: they step, answer,
// commit, change state between steps on one rank, commit early on one rank (as at a SIGTERM), crash
// at any point and roll back one after the other, again cut by crashes.
struct Exploration {
  uint64_t commit_every = 1;
  int ranks = 2;
  uint64_t steps = 5;
  int crashes = 2;
  int changes = 0;           // between two steps, of rank 0 alone
  int early_commits = 0;     // of rank 0 alone, not due
  bool inherit_due = true;   // a change keeps the due of its sequence
  bool erase_dead = true;    // each change first erases dead records
  bool answer_waits = true;  // the answer of N waits for the due commits <= N - 1
};

struct ExplorationResult {
  bool common = true;       // every state has a sequence that is live on all ranks
  uint64_t records = 0;     // most records of one rank at once
  uint64_t images = 0;      // most images of one rank at once
  uint64_t lost_steps = 0;  // most answered steps behind the common sequence
  uint64_t states = 0;
  std::string refused;  // a Drop that the rules refused; empty if none was
};

ExplorationResult Explore(const Exploration& exploration);

}  // namespace moment::store
