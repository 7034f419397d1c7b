#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/optional.h"

namespace moment::session {

inline constexpr size_t kStepIdBytes = 16;

// The step_id that the step after a start (a first filling, a discard, a load) follows.
const std::string& StartStepId();

// The first eight hexadecimal digits of a step_id, for messages and logs.
std::string ShortStepId(const std::string& step_id);

// Decides what becomes of a Step or Skip that arrives: exactly-once is here. Pure bookkeeping; not
// thread-safe, its session guards it.
class StepLedger {
 public:
  struct Arrival {
    uint64_t sequence = 0;
    std::string step_id;
    std::string follows;
    bool skip = false;
    uint64_t contents = 0;  // a digest of everything else that must be the same in a repetition
  };

  enum class Verdict {
    kRun,     // it is the next one
    kJoin,    // it is running: wait for it
    kReplay,  // it is the last applied one: write its parameters again
  };

  // Where the store stands, as its commit or a change between two steps says. nullopt: empty.
  void Reset(absl::optional<uint64_t> sequence, const std::string& step_id);

  // INVALID_ARGUMENT: ids of the wrong size, a repeated step_id with other contents.
  // FAILED_PRECONDITION: an empty store, an old or a future sequence, another predecessor, another
  // step_id for the same sequence; the message names both.
  absl::StatusOr<Verdict> Arrive(const Arrival& arrival) const;

  // After the verdicts kRun and kReplay: it runs from here on.
  void Begin(const Arrival& arrival);
  // It ended; `applied`: the store stands at it.
  void Finish(bool applied);

 private:
  absl::StatusOr<Verdict> AgainstRunning(const Arrival& arrival) const;
  absl::StatusOr<Verdict> AgainstApplied(const Arrival& arrival) const;

  bool empty_ = true;
  // The last applied step. Its contents are not known after a reopening.
  Arrival applied_;
  bool contents_known_ = false;
  absl::optional<Arrival> running_;
};

}  // namespace moment::session
