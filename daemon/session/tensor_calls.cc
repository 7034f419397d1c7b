// The calls of a Session that reach the state by tensor.
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/session/session.h"
#include "daemon/session/tensor_access.h"
#include "daemon/session/tensor_set.h"

namespace moment::session {
namespace {

using pipeline::Access;
using pipeline::TensorAccess;

std::vector<bool> Listed(const std::vector<TensorAccess>& tensors) {
  std::vector<bool> listed(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    listed[i] = tensors[i].any();
  }
  return listed;
}

bool MovesBuffers(const Buffers& buffers) {
  for (const v1::SegmentBuffers& listed : buffers) {
    if (!listed.zeros() && listed.tensors().runs_size() > 0) {
      return true;
    }
  }
  return false;
}

// Tensors that no commit names have nothing that could be read, and their Refresh comes first.
absl::Status CheckNamed(absl::string_view call, const pipeline::StatePipeline& pipeline,
                        const std::vector<bool>& listed) {
  for (const uint32_t tensor : pipeline.store().added_tensors()) {
    if (listed[tensor]) {
      return absl::FailedPreconditionError(
          absl::StrCat(call, ": ", NameTensor(pipeline.store().layout()->proto(), tensor),
                       " is new to the store: Refresh the new tensors first"));
    }
  }
  return absl::OkStatus();
}

// The tensors of an optional set: all that a commit names where it is absent.
absl::StatusOr<std::vector<bool>> Chosen(absl::string_view call, bool given,
                                         const v1::TensorSet& set,
                                         const pipeline::StatePipeline& pipeline) {
  const auto count = static_cast<uint64_t>(pipeline.store().layout()->proto().tensors_size());
  if (given) {
    MOMENT_ASSIGN_OR_RETURN(std::vector<bool> members, Members(set, count, call));
    MOMENT_RETURN_IF_ERROR(CheckNamed(call, pipeline, members));
    return members;
  }
  std::vector<bool> members(count, true);
  for (const uint32_t tensor : pipeline.store().added_tensors()) {
    members[tensor] = false;
  }
  return members;
}

v1::StepPosition PositionOf(const pipeline::StatePipeline& pipeline) {
  const pipeline::Position applied = pipeline.applied().value_or(pipeline::Position());
  v1::StepPosition position;
  position.set_sequence(applied.sequence);
  position.set_step_id(applied.step_id);
  return position;
}

absl::StatusOr<v1::ReadTensorResponse> RunRead(pipeline::StatePipeline& pipeline,
                                               const v1::ReadTensorRequest& request) {
  std::vector<bool> members;
  if (request.buffers_size() == 0) {
    MOMENT_ASSIGN_OR_RETURN(members, Chosen("ReadTensor", false, {}, pipeline));
  } else {
    pipeline::ReadParameters parameters;
    MOMENT_ASSIGN_OR_RETURN(parameters.tensors, ResolveBuffers("ReadTensor", request.buffers(),
                                                               pipeline.store().layout()->proto(),
                                                               /*takes_zeros=*/false));
    parameters.binding = request.binding();
    members = Listed(parameters.tensors);
    MOMENT_RETURN_IF_ERROR(CheckNamed("ReadTensor", pipeline, members));
    MOMENT_RETURN_IF_ERROR(pipeline.Read(parameters));
  }
  v1::ReadTensorResponse response;
  *response.mutable_applied() = PositionOf(pipeline);
  *response.mutable_steps() = ToSteps(pipeline.applied_t(), members);
  return response;
}

absl::StatusOr<v1::CommitInfo> RunWrite(pipeline::StatePipeline& pipeline,
                                        const v1::WriteTensorRequest& request) {
  const v1::Layout& layout = pipeline.store().layout()->proto();
  pipeline::WriteParameters parameters;
  MOMENT_ASSIGN_OR_RETURN(parameters.tensors, ResolveBuffers("WriteTensor", request.buffers(),
                                                             layout, /*takes_zeros=*/true));
  MOMENT_ASSIGN_OR_RETURN(parameters.t, ResolveSteps(request.steps(), layout));
  parameters.binding = request.binding();
  std::vector<bool> listed = Listed(parameters.tensors);
  for (const auto& [tensor, t] : parameters.t) {
    listed[tensor] = true;
  }
  MOMENT_RETURN_IF_ERROR(CheckNamed("WriteTensor", pipeline, listed));
  return pipeline.Write(parameters);
}

absl::StatusOr<v1::CommitInfo> RunReset(pipeline::StatePipeline& pipeline,
                                        const v1::ResetMomentsRequest& request) {
  MOMENT_ASSIGN_OR_RETURN(
      const std::vector<bool> members,
      Chosen("ResetMoments", request.has_tensors(), request.tensors(), pipeline));
  pipeline::WriteParameters parameters;
  parameters.tensors.resize(members.size());
  for (uint32_t tensor = 0; tensor < members.size(); ++tensor) {
    if (members[tensor]) {
      parameters.tensors[tensor].access[device::kExpAvg] = Access::kZeros;
      parameters.tensors[tensor].access[device::kExpAvgSq] = Access::kZeros;
      parameters.t.emplace_back(tensor, 0);
    }
  }
  return pipeline.Write(parameters);
}

absl::StatusOr<v1::DigestResponse> RunDigest(pipeline::StatePipeline& pipeline,
                                             const v1::DigestRequest& request) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<bool> members,
                          Chosen("Digest", request.has_tensors(), request.tensors(), pipeline));
  MOMENT_ASSIGN_OR_RETURN(const std::vector<pipeline::TensorDigest> digests,
                          pipeline.Digest(members));
  const std::vector<uint64_t> t = pipeline.applied_t();
  v1::DigestResponse response;
  *response.mutable_applied() = PositionOf(pipeline);
  for (const pipeline::TensorDigest& digest : digests) {
    v1::TensorDigest* out = response.add_tensors();
    out->set_tensor(digest.tensor);
    out->set_main(digest.segments[device::kMain]);
    out->set_exp_avg(digest.segments[device::kExpAvg]);
    out->set_exp_avg_sq(digest.segments[device::kExpAvgSq]);
    out->set_t(t[digest.tensor]);
  }
  return response;
}

}  // namespace

absl::Status Session::CheckTensors(absl::string_view call, bool moves_buffers) const {
  if (moves_buffers) {
    MOMENT_RETURN_IF_ERROR(CheckAttached(call));
  }
  return CheckHasState(call);
}

absl::StatusOr<v1::ReadTensorResponse> Session::ReadTensor(const v1::ReadTensorRequest& request) {
  MOMENT_ASSIGN_OR_RETURN(v1::Operation done,
                          RunOperation(
                              request.operation(), "read",
                              [this, &request] {
                                mutex_.AssertReaderHeld();
                                return CheckTensors("ReadTensor", MovesBuffers(request.buffers()));
                              },
                              [request](pipeline::StatePipeline& pipeline, Operation& operation) {
                                absl::StatusOr<v1::ReadTensorResponse> response =
                                    RunRead(pipeline, request);
                                v1::Operation result;
                                if (response.ok()) {
                                  *result.mutable_read_tensor() = *std::move(response);
                                }
                                operation.Finish(response.status(), std::move(result));
                              }));
  return std::move(*done.mutable_read_tensor());
}

absl::StatusOr<v1::WriteTensorResponse> Session::WriteTensor(
    const v1::WriteTensorRequest& request) {
  MOMENT_ASSIGN_OR_RETURN(v1::Operation done,
                          RunOperation(
                              request.operation(), "write",
                              [this, &request] {
                                mutex_.AssertReaderHeld();
                                return CheckTensors("WriteTensor", MovesBuffers(request.buffers()));
                              },
                              [request](pipeline::StatePipeline& pipeline, Operation& operation) {
                                absl::StatusOr<v1::CommitInfo> commit = RunWrite(pipeline, request);
                                v1::Operation result;
                                if (commit.ok()) {
                                  *result.mutable_write_tensor()->mutable_commit() =
                                      *std::move(commit);
                                }
                                operation.Finish(commit.status(), std::move(result));
                              }));
  return std::move(*done.mutable_write_tensor());
}

absl::StatusOr<v1::ResetMomentsResponse> Session::ResetMoments(
    const v1::ResetMomentsRequest& request) {
  MOMENT_ASSIGN_OR_RETURN(v1::Operation done,
                          RunOperation(
                              request.operation(), "reset_moments",
                              [this] {
                                mutex_.AssertReaderHeld();
                                return CheckTensors("ResetMoments", /*moves_buffers=*/false);
                              },
                              [request](pipeline::StatePipeline& pipeline, Operation& operation) {
                                absl::StatusOr<v1::CommitInfo> commit = RunReset(pipeline, request);
                                v1::Operation result;
                                if (commit.ok()) {
                                  *result.mutable_reset_moments()->mutable_commit() =
                                      *std::move(commit);
                                }
                                operation.Finish(commit.status(), std::move(result));
                              }));
  return std::move(*done.mutable_reset_moments());
}

absl::StatusOr<v1::DigestResponse> Session::Digest(const v1::DigestRequest& request) {
  MOMENT_ASSIGN_OR_RETURN(v1::Operation done,
                          RunOperation(
                              request.operation(), "digest",
                              [this] {
                                mutex_.AssertReaderHeld();
                                return CheckTensors("Digest", /*moves_buffers=*/false);
                              },
                              [request](pipeline::StatePipeline& pipeline, Operation& operation) {
                                absl::StatusOr<v1::DigestResponse> response =
                                    RunDigest(pipeline, request);
                                v1::Operation result;
                                if (response.ok()) {
                                  *result.mutable_digest() = *std::move(response);
                                }
                                operation.Finish(response.status(), std::move(result));
                              }));
  return std::move(*done.mutable_digest());
}

}  // namespace moment::session
