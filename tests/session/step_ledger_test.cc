#include "daemon/session/step_ledger.h"

#include "tests/support/catch.h"

namespace moment::session {
namespace {

std::string Id(char c) { return std::string(kStepIdBytes, c); }

StepLedger::Arrival Step(uint64_t sequence, char id, const std::string& follows) {
  return {sequence, Id(id), follows, false, 7};
}

// A ledger that stands at sequence 5, step_id 'e'.
StepLedger AtFive() {
  StepLedger ledger;
  ledger.Reset(5, Id('e'));
  return ledger;
}

bool Names(const absl::Status& status, const std::string& text) {
  return status.message().find(text) != absl::string_view::npos;
}

TEST_CASE("Ledger: the next step of the right predecessor runs", "[session]") {
  const StepLedger ledger = AtFive();
  REQUIRE(ledger.Arrive(Step(6, 'f', Id('e'))).value() == StepLedger::Verdict::kRun);
}

TEST_CASE("Ledger: the first step follows sixteen zero bytes", "[session]") {
  StepLedger ledger;
  ledger.Reset(0, "");
  REQUIRE(ledger.Arrive(Step(1, 'a', StartStepId())).value() == StepLedger::Verdict::kRun);
  REQUIRE(ledger.Arrive(Step(1, 'a', Id('x'))).status().code() ==
          absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("Ledger: a step of an empty store is refused", "[session]") {
  const StepLedger ledger;
  const absl::Status status = ledger.Arrive(Step(1, 'a', StartStepId())).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Names(status, "Refresh"));
}

TEST_CASE("Ledger: the same step joins while it runs and is replayed when it is applied",
          "[session]") {
  StepLedger ledger = AtFive();
  const StepLedger::Arrival step = Step(6, 'f', Id('e'));
  ledger.Begin(step);
  REQUIRE(ledger.Arrive(step).value() == StepLedger::Verdict::kJoin);
  ledger.Finish(true);
  REQUIRE(ledger.Arrive(step).value() == StepLedger::Verdict::kReplay);
}

TEST_CASE("Ledger: a step that failed may run again, under its own or another id", "[session]") {
  StepLedger ledger = AtFive();
  ledger.Begin(Step(6, 'f', Id('e')));
  ledger.Finish(false);
  REQUIRE(ledger.Arrive(Step(6, 'f', Id('e'))).value() == StepLedger::Verdict::kRun);
  REQUIRE(ledger.Arrive(Step(6, 'g', Id('e'))).value() == StepLedger::Verdict::kRun);
}

TEST_CASE("Ledger: another id for the applied sequence is refused naming both", "[session]") {
  const absl::Status status = AtFive().Arrive(Step(5, 'x', Id('d'))).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Names(status, "78787878"));
  REQUIRE(Names(status, "65656565"));
}

TEST_CASE("Ledger: a wrong predecessor is refused naming both", "[session]") {
  const absl::Status status = AtFive().Arrive(Step(6, 'f', Id('x'))).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Names(status, "78787878"));
  REQUIRE(Names(status, "65656565"));
}

TEST_CASE("Ledger: old and future sequences are refused naming the expected one", "[session]") {
  for (const uint64_t sequence : {uint64_t{0}, uint64_t{4}, uint64_t{7}, UINT64_MAX}) {
    const absl::Status status = AtFive().Arrive(Step(sequence, 'x', Id('e'))).status();
    REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
    REQUIRE(Names(status, "the next one is 6"));
  }
}

TEST_CASE("Ledger: a repeated step_id with other contents is refused", "[session]") {
  StepLedger ledger = AtFive();
  ledger.Begin(Step(6, 'f', Id('e')));
  StepLedger::Arrival other = Step(6, 'f', Id('e'));
  other.contents = 8;
  REQUIRE(ledger.Arrive(other).status().code() == absl::StatusCode::kInvalidArgument);
  ledger.Finish(true);
  REQUIRE(ledger.Arrive(other).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Ledger: a step_id repeated under another sequence is refused", "[session]") {
  REQUIRE(AtFive().Arrive(Step(6, 'e', Id('e'))).status().code() ==
          absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Ledger: a skip is not the repetition of a step of the same id", "[session]") {
  StepLedger ledger = AtFive();
  ledger.Begin(Step(6, 'f', Id('e')));
  ledger.Finish(true);
  StepLedger::Arrival skip = Step(6, 'f', Id('e'));
  skip.skip = true;
  REQUIRE(ledger.Arrive(skip).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Ledger: after a reopening the last step is replayed whatever its contents",
          "[session]") {
  StepLedger::Arrival last = Step(5, 'e', Id('d'));
  last.contents = 99;
  REQUIRE(AtFive().Arrive(last).value() == StepLedger::Verdict::kReplay);
}

TEST_CASE("Ledger: a step arriving while another runs is refused naming both", "[session]") {
  StepLedger ledger = AtFive();
  ledger.Begin(Step(6, 'f', Id('e')));
  const absl::Status status = ledger.Arrive(Step(6, 'g', Id('e'))).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Names(status, "66666666"));
  REQUIRE(Names(status, "67676767"));
}

TEST_CASE("Ledger: ids of another size, or of zeros, are refused", "[session]") {
  StepLedger::Arrival step = Step(6, 'f', Id('e'));
  step.step_id = "short";
  REQUIRE(AtFive().Arrive(step).status().code() == absl::StatusCode::kInvalidArgument);
  step.step_id = StartStepId();
  REQUIRE(AtFive().Arrive(step).status().code() == absl::StatusCode::kInvalidArgument);
  step.step_id = Id('f');
  step.follows = "";
  REQUIRE(AtFive().Arrive(step).status().code() == absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace moment::session
