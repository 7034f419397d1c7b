#include "daemon/session/participants.h"

#include <cmath>
#include <limits>

#include "tests/support/catch.h"

namespace moment::session {
namespace {

using pipeline::kSitsOut;

v1::Group* AddGroup(v1::StepRequest& request, uint32_t first, uint32_t count) {
  v1::Group* group = request.add_groups();
  v1::Hyperparameters* wire = group->mutable_hyperparameters();
  wire->set_lr(1e-3);
  wire->set_beta1(0.9);
  wire->set_beta2(0.999);
  wire->set_eps(1e-8);
  wire->set_mode(v1::ADAM_MODE_ADAMW);
  v1::TensorRun* run = group->mutable_tensors()->add_runs();
  run->set_first(first);
  run->set_count(count);
  return group;
}

bool Names(const absl::Status& status, const std::string& text) {
  return status.message().find(text) != absl::string_view::npos;
}

TEST_CASE("Participants: without a list every tensor of the groups takes part", "[session]") {
  v1::StepRequest request;
  AddGroup(request, 0, 2);
  AddGroup(request, 3, 1);
  const pipeline::StepParameters step = ResolveStep(request, 5).value();
  REQUIRE(step.group_of == std::vector<uint32_t>{0, 0, kSitsOut, 1, kSitsOut});
  REQUIRE(step.hyperparameters.size() == 2);
  REQUIRE(step.hyperparameters[0].lr == 1e-3);
  REQUIRE(step.hyperparameters[0].gradient_scale == 1.0f);
}

TEST_CASE("Participants: a list makes the others sit out, in the record too", "[session]") {
  v1::StepRequest request;
  AddGroup(request, 0, 4);
  v1::TensorRun* run = request.mutable_participants()->add_runs();
  run->set_first(1);
  run->set_count(2);
  const pipeline::StepParameters step = ResolveStep(request, 4).value();
  REQUIRE(step.group_of == std::vector<uint32_t>{kSitsOut, 0, 0, kSitsOut});
  REQUIRE(step.groups.size() == 1);
  REQUIRE(step.groups[0].tensors().runs_size() == 1);
  REQUIRE(step.groups[0].tensors().runs(0).first() == 1);
  REQUIRE(step.groups[0].tensors().runs(0).count() == 2);
}

TEST_CASE("Participants: a tensor in two groups is refused naming both", "[session]") {
  v1::StepRequest request;
  AddGroup(request, 0, 3);
  AddGroup(request, 2, 1);
  const absl::Status status = ResolveStep(request, 4).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Names(status, "tensor 2 stands in groups 0 and 1"));
}

TEST_CASE("Participants: one that stands in no group is refused", "[session]") {
  v1::StepRequest request;
  AddGroup(request, 0, 1);
  v1::TensorRun* run = request.mutable_participants()->add_runs();
  run->set_first(0);
  run->set_count(2);
  REQUIRE(Names(ResolveStep(request, 2).status(), "tensor 1"));
}

TEST_CASE("Participants: indices beyond the store are refused, also where the sum overflows",
          "[session]") {
  v1::StepRequest request;
  AddGroup(request, 3, 2);
  REQUIRE(ResolveStep(request, 4).status().code() == absl::StatusCode::kInvalidArgument);
  v1::StepRequest wide;
  AddGroup(wide, UINT32_MAX, UINT32_MAX);
  REQUIRE(ResolveStep(wide, 4).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Participants: t is compared with what the trainer expects, per tensor", "[session]") {
  v1::StepRequest request;
  request.set_sequence(9);
  AddGroup(request, 0, 2);
  v1::ExpectedSteps* expected = request.add_expected();
  expected->set_t(4);
  v1::TensorRun* run = expected->mutable_tensors()->add_runs();
  run->set_first(0);
  run->set_count(2);
  REQUIRE(CheckExpectedSteps(request, {0, 0}, {3, 3}).ok());
  REQUIRE(CheckExpectedSteps(request, {0, kSitsOut}, {3, 4}).ok());
  const absl::Status status = CheckExpectedSteps(request, {0, 0}, {3, 2});
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Names(status, "tensor 1 would be at t = 3"));
}

TEST_CASE("Hyperparameters: NaN, Inf and what is out of range are refused naming group and field",
          "[session]") {
  using Set = void (*)(v1::Hyperparameters&, double);
  const std::pair<const char*, Set> fields[] = {
      {"lr", [](v1::Hyperparameters& wire, double value) { wire.set_lr(value); }},
      {"beta1", [](v1::Hyperparameters& wire, double value) { wire.set_beta1(value); }},
      {"beta2", [](v1::Hyperparameters& wire, double value) { wire.set_beta2(value); }},
      {"eps", [](v1::Hyperparameters& wire, double value) { wire.set_eps(value); }},
      {"weight_decay",
       [](v1::Hyperparameters& wire, double value) { wire.set_weight_decay(value); }},
  };
  const double bad[] = {std::nan(""), std::numeric_limits<double>::infinity(),
                        -std::numeric_limits<double>::infinity(), -1e-3, 1e39};
  for (const auto& [field, set] : fields) {
    for (const double value : bad) {
      v1::StepRequest request;
      AddGroup(request, 0, 1);
      set(*AddGroup(request, 1, 1)->mutable_hyperparameters(), value);
      const absl::Status status = ResolveStep(request, 2).status();
      INFO(field << " = " << value);
      REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
      REQUIRE(Names(status, std::string("group 1: ") + field));
    }
  }
}

TEST_CASE("Hyperparameters: a beta of 1 is refused, zeros are not", "[session]") {
  v1::StepRequest request;
  v1::Hyperparameters* wire = AddGroup(request, 0, 1)->mutable_hyperparameters();
  wire->set_lr(0);
  wire->set_beta1(0);
  wire->set_beta2(0);
  wire->set_eps(0);
  REQUIRE(ResolveStep(request, 1).ok());
  wire->set_beta2(1);
  REQUIRE(Names(ResolveStep(request, 1).status(), "beta2"));
}

TEST_CASE("Hyperparameters: a gradient scale that is not finite, or no mode, is refused",
          "[session]") {
  v1::StepRequest request;
  v1::Hyperparameters* wire = AddGroup(request, 0, 1)->mutable_hyperparameters();
  wire->set_gradient_scale(std::numeric_limits<float>::quiet_NaN());
  REQUIRE(Names(ResolveStep(request, 1).status(), "gradient_scale"));
  wire->set_gradient_scale(0.5f);
  REQUIRE(ResolveStep(request, 1).value().hyperparameters[0].gradient_scale == 0.5f);
  wire->set_mode(v1::ADAM_MODE_UNSPECIFIED);
  REQUIRE(Names(ResolveStep(request, 1).status(), "mode"));
}

}  // namespace
}  // namespace moment::session
