// What a StoreClient reads and writes by tensor.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/errors.h"
#include "client/src/store_client.h"

namespace moment::client {
namespace {

// t by caller's index; 0 for tensors that the answer does not name.
std::vector<uint64_t> StepsOf(const TensorMap& tensors, const v1::ReadTensorResponse& response) {
  std::vector<uint64_t> t(tensors.size(), 0);
  for (const v1::ExpectedSteps& steps : response.steps()) {
    for (const uint32_t tensor : tensors.IndicesFromStore(steps.tensors())) {
      t[tensor] = steps.t();
    }
  }
  return t;
}

}  // namespace

absl::Status StoreClient::CheckHasState(absl::string_view call) const {
  return standing().empty
             ? absl::FailedPreconditionError(absl::StrCat(call, ": the store is empty"))
             : absl::OkStatus();
}

absl::StatusOr<v1::ReadTensorResponse> StoreClient::CallRead(v1::ReadTensorRequest request) {
  request.set_operation(NewOperation());
  v1::ReadTensorResponse response;
  MOMENT_CLIENT_RETURN_IF_ERROR(Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    return FromGrpc(connection.stub().ReadTensor(context, request, &response));
  }));
  return response;
}

absl::Status StoreClient::ReadTensors(absl::Span<const moment_buffer> buffers, uint64_t* t) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckHasState("read"));
  if (buffers.empty()) {
    return absl::OkStatus();
  }
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckCanChange("read"));
  absl::StatusOr<SegmentPlan> plan = MakeSegmentPlan(tensors_, buffers, /*writes=*/false);
  MOMENT_CLIENT_RETURN_IF_ERROR(plan.status());
  v1::ReadTensorRequest request;
  *request.mutable_buffers() = std::move(plan->request);
  request.set_binding(++binding_);
  table_->BindSegments(plan->buffers, binding_);
  const absl::StatusOr<v1::ReadTensorResponse> response = CallRead(std::move(request));
  table_->ClearSegments();
  MOMENT_CLIENT_RETURN_IF_ERROR(response.status());
  if (t != nullptr) {
    const std::vector<uint64_t> steps = StepsOf(tensors_, *response);
    std::transform(buffers.begin(), buffers.end(), t,
                   [&](const moment_buffer& buffer) { return steps[buffer.tensor]; });
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint64_t>> StoreClient::Steps() {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckHasState("steps"));
  const absl::StatusOr<v1::ReadTensorResponse> response = CallRead({});
  MOMENT_CLIENT_RETURN_IF_ERROR(response.status());
  return StepsOf(tensors_, *response);
}

absl::StatusOr<v1::CommitInfo> StoreClient::WriteTensors(const moment_write_options& options) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckSettled());
  if ((options.buffers == nullptr && options.buffer_count > 0) ||
      (options.steps == nullptr && options.step_count > 0)) {
    return absl::InvalidArgumentError("a count without its array");
  }
  absl::StatusOr<SegmentPlan> plan =
      MakeSegmentPlan(tensors_, {options.buffers, options.buffer_count}, /*writes=*/true);
  MOMENT_CLIENT_RETURN_IF_ERROR(plan.status());
  auto steps = MakeSteps(tensors_, {options.steps, options.step_count});
  MOMENT_CLIENT_RETURN_IF_ERROR(steps.status());
  if (!plan->buffers.empty()) {
    MOMENT_CLIENT_RETURN_IF_ERROR(CheckCanChange("write"));
  }
  v1::WriteTensorRequest request;
  request.set_operation(NewOperation());
  *request.mutable_buffers() = std::move(plan->request);
  *request.mutable_steps() = *std::move(steps);
  request.set_binding(++binding_);
  table_->BindSegments(plan->buffers, binding_);
  v1::WriteTensorResponse response;
  const absl::Status status = Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    return FromGrpc(connection.stub().WriteTensor(context, request, &response));
  });
  table_->ClearSegments();
  if ((status.ok() || !OutcomeKnown(status)) && options.parameters_match == 0) {
    SetStale(plan->mains, true);
  }
  MOMENT_CLIENT_RETURN_IF_ERROR(status);
  return response.commit();
}

absl::StatusOr<v1::CommitInfo> StoreClient::ResetMoments(
    absl::optional<absl::Span<const moment_run>> runs) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckSettled());
  v1::ResetMomentsRequest request;
  request.set_operation(NewOperation());
  if (runs.has_value()) {
    auto marked = tensors_.Mark(*runs, "reset_moments");
    MOMENT_CLIENT_RETURN_IF_ERROR(marked.status());
    *request.mutable_tensors() = tensors_.ToStore(*marked);
  }
  v1::ResetMomentsResponse response;
  MOMENT_CLIENT_RETURN_IF_ERROR(Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    return FromGrpc(connection.stub().ResetMoments(context, request, &response));
  }));
  return response.commit();
}

absl::StatusOr<std::vector<moment_tensor_digest>> StoreClient::Digest(
    absl::optional<absl::Span<const moment_run>> runs) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckHasState("digest"));
  v1::DigestRequest request;
  request.set_operation(NewOperation());
  if (runs.has_value()) {
    auto marked = tensors_.Mark(*runs, "digest");
    MOMENT_CLIENT_RETURN_IF_ERROR(marked.status());
    *request.mutable_tensors() = tensors_.ToStore(*marked);
  }
  v1::DigestResponse response;
  MOMENT_CLIENT_RETURN_IF_ERROR(Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    return FromGrpc(connection.stub().Digest(context, request, &response));
  }));
  std::vector<moment_tensor_digest> digests;
  digests.reserve(static_cast<size_t>(response.tensors_size()));
  for (const v1::TensorDigest& from : response.tensors()) {
    const absl::optional<uint32_t> tensor = tensors_.FromStore(from.tensor());
    if (tensor.has_value()) {
      digests.push_back({*tensor, from.main(), from.exp_avg(), from.exp_avg_sq(), from.t()});
    }
  }
  std::sort(digests.begin(), digests.end(),
            [](const auto& a, const auto& b) { return a.tensor < b.tensor; });
  return digests;
}

}  // namespace moment::client
