// The calls of PipelineImpl that reach the state by tensor.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/pipeline/pipeline_impl.h"
#include "daemon/pipeline/pipeline_wait.h"

namespace moment::pipeline {
namespace {

bool AnyBuffer(const std::vector<TensorAccess>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const TensorAccess& tensor) { return tensor.Any(Access::kBuffer); });
}

}  // namespace

absl::StatusOr<PartPlan> PipelineImpl::PlanParts(const std::vector<TensorAccess>& tensors) {
  uint64_t slot_bytes = 0;
  loop_->RunAndWait([&] { slot_bytes = lanes_->bound() ? lanes_->slot_bytes() : 0; });
  return PartPlan::Create(plan_, ArraysOf(tensors), slot_bytes);
}

absl::Status PipelineImpl::AddAccess(const std::vector<TensorAccess>& tensors,
                                     PassSpec& spec) const {
  const auto count = static_cast<size_t>(store_->layout()->proto().tensors_size());
  if (tensors.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("access to ", tensors.size(), " tensors; the store has ", count));
  }
  const size_t known = published()->t.size();
  spec.work.access = tensors;
  spec.work.participates.resize(count);
  for (size_t i = 0; i < count; ++i) {
    if (tensors[i].any() && i >= known) {
      return absl::FailedPreconditionError(absl::StrCat(
          "tensor ", i, " is not in the applied state: Refresh the tensors that were added"));
    }
    spec.work.participates[i] = tensors[i].any() ? 1 : 0;
  }
  return absl::OkStatus();
}

absl::Status PipelineImpl::Read(const ReadParameters& parameters) {
  CallScope scope(*this, "read");
  MOMENT_RETURN_IF_ERROR(CheckReady(AnyBuffer(parameters.tensors), /*needs_state=*/true));
  PassSpec spec;
  spec.work.op = device::ChunkOp::kRead;
  spec.work.profile = options_.profile;
  spec.work.binding = parameters.binding;
  MOMENT_RETURN_IF_ERROR(AddAccess(parameters.tensors, spec));
  MOMENT_ASSIGN_OR_RETURN(spec.parts, PlanParts(parameters.tensors));
  return RunPass(std::move(spec)).status();
}

absl::StatusOr<PassSpec> PipelineImpl::WriteSpec(const WriteParameters& parameters) const {
  PassSpec spec;
  spec.work.op = device::ChunkOp::kWrite;
  spec.work.binding = parameters.binding;
  MOMENT_RETURN_IF_ERROR(AddAccess(parameters.tensors, spec));
  spec.next = *published();
  for (const auto& [tensor, t] : parameters.t) {
    if (tensor >= spec.next.t.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "tensor ", tensor, " is not in the applied state: Refresh the tensors that were added"));
    }
    spec.next.t[tensor] = t;
  }
  return spec;
}

absl::StatusOr<v1::CommitInfo> PipelineImpl::Write(const WriteParameters& parameters) {
  CallScope scope(*this, "write");
  MOMENT_RETURN_IF_ERROR(CheckReady(AnyBuffer(parameters.tensors), /*needs_state=*/true));
  MOMENT_ASSIGN_OR_RETURN(PassSpec spec, WriteSpec(parameters));
  MOMENT_ASSIGN_OR_RETURN(spec.parts, PlanParts(parameters.tensors));
  return RunChange(std::move(spec));
}

absl::StatusOr<std::vector<TensorDigest>> PipelineImpl::Digest(const std::vector<bool>& tensors) {
  CallScope scope(*this, "digest");
  MOMENT_RETURN_IF_ERROR(CheckReady(/*needs_memory=*/false, /*needs_state=*/true));
  const auto& described = store_->layout()->proto().tensors();
  std::vector<uint64_t> elements;
  std::vector<uint8_t> wanted;
  for (const v1::Tensor& tensor : described) {
    const size_t i = elements.size();
    elements.push_back(store::ElementCount(tensor));
    wanted.push_back(i < tensors.size() && tensors[i] ? 1 : 0);
    if (wanted.back() != 0 && i >= published()->t.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "tensor ", i, " is not in the applied state: Refresh the tensors that were added"));
    }
  }
  TensorDigests digests(plan_, wanted, std::move(elements));
  PassSpec spec;
  spec.work.op = device::ChunkOp::kRead;
  spec.work.profile = options_.profile;
  spec.work.participates = std::move(wanted);
  spec.digests = &digests;
  MOMENT_RETURN_IF_ERROR(RunPass(std::move(spec)).status());
  return digests.Take();
}

}  // namespace moment::pipeline
