// What a StoreClient changes between two steps: refresh, materialize, rollback; and their progress.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/errors.h"
#include "client/src/store_client.h"

namespace moment::client {

std::string StoreClient::NewOperation() {
  std::string id = Hex(RandomBytes16());
  Restand([&id](Standing& standing) { standing.operation = id; });
  return id;
}

void StoreClient::StandAt(const v1::CommitInfo& commit) {
  Position position;
  position.sequence = commit.sequence();
  if (commit.step_id().size() == position.step_id.size()) {
    position.step_id = commit.step_id();
  }
  absl::MutexLock lock(&state_mutex_);
  if (standing_.in_flight.has_value() && *standing_.in_flight == position) {
    opened_.set_blob(std::move(blob_in_flight_));  // it was applied after all
  }
  standing_.answered = std::move(position);
  standing_.in_flight.reset();
  standing_.rewound = false;
  standing_.empty = false;
  standing_.must_discard = false;
}

absl::Status StoreClient::CheckCanChange(absl::string_view call) const {
  if (!attached_) {
    return absl::FailedPreconditionError(absl::StrCat(call, ": no parameters are attached"));
  }
  return absl::OkStatus();
}

absl::Status StoreClient::CheckSettled() const {
  const Standing now = standing();
  return now.empty || now.rewound || now.in_flight.has_value() ? CheckCanStep(false)
                                                               : absl::OkStatus();
}

void StoreClient::SetStale(const std::vector<bool>& marked, bool stale) {
  for (size_t i = 0; i < marked.size(); ++i) {
    stale_[i] = marked[i] ? stale : stale_[i];
  }
  const auto count = static_cast<size_t>(std::count(stale_.begin(), stale_.end(), true));
  Restand([count](Standing& standing) { standing.stale_tensors = count; });
}

absl::StatusOr<v1::CommitInfo> StoreClient::Refresh(absl::Span<const moment_run> runs) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckCanChange("refresh"));
  MOMENT_CLIENT_RETURN_IF_ERROR(AttachMoved());
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckSettled());
  auto marked = tensors_.Mark(runs, "refresh");
  MOMENT_CLIENT_RETURN_IF_ERROR(marked.status());
  v1::RefreshRequest request;
  request.set_operation(NewOperation());
  *request.mutable_tensors() = tensors_.ToStore(*marked);
  v1::RefreshResponse response;
  MOMENT_CLIENT_RETURN_IF_ERROR(Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    return FromGrpc(connection.stub().Refresh(context, request, &response));
  }));
  SetStale(*marked, false);
  return response.commit();
}

absl::StatusOr<v1::CommitInfo> StoreClient::RefreshAll(bool discard, uint64_t start_sequence,
                                                       const std::string& blob) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckCanChange("refresh"));
  MOMENT_CLIENT_RETURN_IF_ERROR(AttachMoved());
  v1::RefreshRequest request;
  request.set_operation(NewOperation());
  request.mutable_whole()->set_discard(discard || standing().must_discard);
  request.mutable_whole()->set_start_sequence(start_sequence);
  request.set_blob(blob);
  v1::RefreshResponse response;
  Restand([](Standing& standing) { standing.changing = true; });
  const uint64_t reconnects = standing().reconnects;
  const absl::Status status = Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    // A lost answer may have made the first commit: asked again, it starts over once more.
    if (standing().reconnects != reconnects && connection.opened().has_last_applied()) {
      request.mutable_whole()->set_discard(true);
    }
    return FromGrpc(connection.stub().Refresh(context, request, &response));
  });
  Restand([](Standing& standing) { standing.changing = false; });
  MOMENT_CLIENT_RETURN_IF_ERROR(status);
  StandAt(response.commit());
  SetStale(std::vector<bool>(tensors_.size(), true), false);
  absl::MutexLock state(&state_mutex_);
  standing_.stale = false;
  opened_.set_blob(blob);
  return response.commit();
}

absl::Status StoreClient::Materialize(absl::Span<const moment_run> runs) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckCanChange("materialize"));
  MOMENT_CLIENT_RETURN_IF_ERROR(AttachMoved());
  if (standing().empty) {
    return absl::FailedPreconditionError("materialize: the store is empty");
  }
  v1::MaterializeRequest request;
  request.set_operation(NewOperation());
  std::vector<bool> written(tensors_.size(), true);
  if (!runs.empty()) {
    auto marked = tensors_.Mark(runs, "materialize");
    MOMENT_CLIENT_RETURN_IF_ERROR(marked.status());
    written = *std::move(marked);
    *request.mutable_tensors() = tensors_.ToStore(written);
  }
  v1::MaterializeResponse response;
  MOMENT_CLIENT_RETURN_IF_ERROR(Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    return FromGrpc(connection.stub().Materialize(context, request, &response));
  }));
  SetStale(written, false);
  if (runs.empty()) {
    v1::CommitInfo position;
    position.set_sequence(response.sequence());
    position.set_step_id(response.step_id());
    StandAt(position);
    Restand([](Standing& standing) { standing.stale = false; });
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::CommitInfo> StoreClient::Rollback(uint64_t sequence) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  v1::RollbackRequest request;
  request.set_operation(NewOperation());
  request.set_sequence(sequence);
  v1::RollbackResponse response;
  Restand([](Standing& standing) { standing.changing = true; });
  const absl::Status status = Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    return FromGrpc(connection.stub().Rollback(context, request, &response));
  });
  Restand([](Standing& standing) { standing.changing = false; });
  MOMENT_CLIENT_RETURN_IF_ERROR(status);
  StandAt(response.commit());
  absl::MutexLock state(&state_mutex_);
  standing_.stale = true;
  opened_.set_blob(response.blob());
  *opened_.mutable_commits() = response.commits();
  return response.commit();
}

absl::StatusOr<v1::Operation> StoreClient::GetOperation(const std::string& id) const {
  std::shared_ptr<Connection> connection;
  v1::GetOperationRequest request;
  {
    absl::MutexLock state(&state_mutex_);
    connection = connection_;
    request.set_operation(id.empty() ? standing_.operation : id);
  }
  if (connection == nullptr) {
    return absl::UnavailableError("the daemon is away");
  }
  request.set_session(connection->session());
  grpc::ClientContext context;
  v1::Operation operation;
  MOMENT_CLIENT_RETURN_IF_ERROR(
      FromGrpc(connection->stub().GetOperation(&context, request, &operation)));
  return operation;
}

}  // namespace moment::client
