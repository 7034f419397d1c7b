#include "daemon/session/step_ledger.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/base/errors.h"

namespace moment::session {
namespace {

using Verdict = StepLedger::Verdict;

std::string Name(const StepLedger::Arrival& step) {
  return absl::StrCat(step.skip ? "skip " : "step ", step.sequence, " (", ShortStepId(step.step_id),
                      ")");
}

absl::Status CheckIds(const StepLedger::Arrival& arrival) {
  if (arrival.step_id.size() != kStepIdBytes || arrival.step_id == StartStepId()) {
    return absl::InvalidArgumentError(absl::StrCat("step_id of sequence ", arrival.sequence,
                                                   " has ", arrival.step_id.size(),
                                                   " bytes; it must be 16 random ones"));
  }
  if (arrival.follows.size() != kStepIdBytes) {
    return absl::InvalidArgumentError(absl::StrCat("follows of ", Name(arrival), " has ",
                                                   arrival.follows.size(),
                                                   " bytes; it must be a step_id of 16"));
  }
  return absl::OkStatus();
}

absl::Status OtherContents(const StepLedger::Arrival& arrival, const StepLedger::Arrival& known) {
  return absl::InvalidArgumentError(
      absl::StrCat("step_id ", ShortStepId(arrival.step_id), " is that of ", Name(known), ", and ",
                   Name(arrival), " has other contents: a repetition must be the same request"));
}

}  // namespace

const std::string& StartStepId() {
  static const std::string* const zeros = new std::string(kStepIdBytes, '\0');
  return *zeros;
}

std::string ShortStepId(const std::string& step_id) {
  return absl::BytesToHexString(absl::string_view(step_id).substr(0, 4));
}

void StepLedger::Reset(absl::optional<uint64_t> sequence, const std::string& step_id) {
  empty_ = !sequence.has_value();
  applied_ = {};
  applied_.sequence = sequence.value_or(0);
  applied_.step_id = step_id.empty() ? StartStepId() : step_id;
  contents_known_ = false;
}

absl::StatusOr<Verdict> StepLedger::Arrive(const Arrival& arrival) const {
  MOMENT_RETURN_IF_ERROR(CheckIds(arrival));
  if (empty_) {
    return absl::FailedPreconditionError(absl::StrCat(
        Name(arrival), ": the store is empty; Refresh the whole store before the first step"));
  }
  return running_.has_value() ? AgainstRunning(arrival) : AgainstApplied(arrival);
}

absl::StatusOr<Verdict> StepLedger::AgainstRunning(const Arrival& arrival) const {
  if (arrival.step_id != running_->step_id) {
    return absl::FailedPreconditionError(absl::StrCat(
        Name(arrival), " arrived while ", Name(*running_), " is running: wait for its answer"));
  }
  if (arrival.sequence != running_->sequence || arrival.skip != running_->skip ||
      arrival.contents != running_->contents) {
    return OtherContents(arrival, *running_);
  }
  return Verdict::kJoin;
}

absl::StatusOr<Verdict> StepLedger::AgainstApplied(const Arrival& arrival) const {
  if (arrival.step_id == applied_.step_id) {
    const bool same = arrival.sequence == applied_.sequence &&
                      (!contents_known_ ||
                       (arrival.skip == applied_.skip && arrival.contents == applied_.contents));
    return same ? absl::StatusOr<Verdict>(Verdict::kReplay) : OtherContents(arrival, applied_);
  }
  if (arrival.sequence == applied_.sequence) {
    return absl::FailedPreconditionError(absl::StrCat(Name(arrival), ": sequence ",
                                                      applied_.sequence, " was applied as step_id ",
                                                      ShortStepId(applied_.step_id)));
  }
  if (arrival.sequence != applied_.sequence + 1) {
    return absl::FailedPreconditionError(
        absl::StrCat(Name(arrival), ": the store stands at sequence ", applied_.sequence,
                     ", so the next one is ", applied_.sequence + 1));
  }
  if (arrival.follows != applied_.step_id) {
    return absl::FailedPreconditionError(absl::StrCat(
        Name(arrival), " follows step_id ", ShortStepId(arrival.follows), ", but sequence ",
        applied_.sequence, " was applied as ", ShortStepId(applied_.step_id)));
  }
  return Verdict::kRun;
}

void StepLedger::Begin(const Arrival& arrival) { running_ = arrival; }

void StepLedger::Finish(bool applied) {
  if (applied && running_.has_value()) {
    applied_ = *running_;
    contents_known_ = true;
  }
  running_.reset();
}

}  // namespace moment::session
