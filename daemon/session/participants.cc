#include "daemon/session/participants.h"

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/session/hyperparameters.h"
#include "daemon/session/tensor_set.h"

namespace moment::session {
namespace {

using pipeline::kSitsOut;

absl::Status AddGroup(const v1::Group& group, uint32_t index, std::vector<uint32_t>& group_of) {
  return ForEachTensor(
      group.tensors(), group_of.size(), absl::StrCat("group ", index), [&](uint32_t tensor) {
        if (group_of[tensor] != kSitsOut && group_of[tensor] != index) {
          return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor, " stands in groups ",
                                                         group_of[tensor], " and ", index));
        }
        group_of[tensor] = index;
        return absl::OkStatus();
      });
}

absl::Status KeepParticipants(const v1::TensorSet& participants, std::vector<uint32_t>& group_of) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<bool> takes_part,
                          Members(participants, group_of.size(), "participants"));
  for (uint32_t tensor = 0; tensor < group_of.size(); ++tensor) {
    if (takes_part[tensor] && group_of[tensor] == kSitsOut) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor, " takes part but stands in no group"));
    }
    if (!takes_part[tensor]) {
      group_of[tensor] = kSitsOut;
    }
  }
  return absl::OkStatus();
}

// The request's groups with the tensors that take part.
std::vector<v1::Group> Recorded(const v1::StepRequest& request,
                                const std::vector<uint32_t>& group_of) {
  std::vector<v1::Group> groups(static_cast<size_t>(request.groups_size()));
  for (uint32_t tensor = 0; tensor < group_of.size();) {
    const uint32_t group = group_of[tensor];
    uint32_t end = tensor + 1;
    while (end < group_of.size() && group_of[end] == group) {
      ++end;
    }
    if (group != kSitsOut) {
      v1::TensorRun* run = groups[group].mutable_tensors()->add_runs();
      run->set_first(tensor);
      run->set_count(end - tensor);
    }
    tensor = end;
  }
  for (size_t group = 0; group < groups.size(); ++group) {
    *groups[group].mutable_hyperparameters() =
        request.groups(static_cast<int>(group)).hyperparameters();
  }
  return groups;
}

}  // namespace

absl::StatusOr<pipeline::StepParameters> ResolveStep(const v1::StepRequest& request,
                                                     uint64_t tensor_count) {
  pipeline::StepParameters step;
  step.sequence = request.sequence();
  step.step_id = request.step_id();
  step.blob = request.blob();
  step.group_of.assign(tensor_count, kSitsOut);
  for (int i = 0; i < request.groups_size(); ++i) {
    MOMENT_ASSIGN_OR_RETURN(device::Hyperparameters checked,
                            CheckHyperparameters(request.groups(i).hyperparameters(), i));
    step.hyperparameters.push_back(checked);
    MOMENT_RETURN_IF_ERROR(AddGroup(request.groups(i), static_cast<uint32_t>(i), step.group_of));
  }
  if (request.has_participants()) {
    MOMENT_RETURN_IF_ERROR(KeepParticipants(request.participants(), step.group_of));
  }
  step.groups = Recorded(request, step.group_of);
  return step;
}

absl::Status CheckExpectedSteps(const v1::StepRequest& request,
                                const std::vector<uint32_t>& group_of,
                                const std::vector<uint64_t>& applied_t) {
  for (const v1::ExpectedSteps& expected : request.expected()) {
    MOMENT_RETURN_IF_ERROR(
        ForEachTensor(expected.tensors(), group_of.size(), "expected", [&](uint32_t tensor) {
          const uint64_t t = (tensor < applied_t.size() ? applied_t[tensor] : 0) +
                             (group_of[tensor] == kSitsOut ? 0 : 1);
          if (t != expected.t()) {
            return absl::FailedPreconditionError(
                absl::StrCat("tensor ", tensor, " would be at t = ", t, " after sequence ",
                             request.sequence(), "; the trainer expects ", expected.t()));
          }
          return absl::OkStatus();
        }));
  }
  return absl::OkStatus();
}

}  // namespace moment::session
