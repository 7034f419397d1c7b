// Steps, skips and flushes of a StoreClient.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/errors.h"
#include "client/src/store_client.h"

namespace moment::client {

absl::Status StoreClient::CheckCanStep(bool resend) const {
  const Standing now = standing();
  if (now.rewound) {
    return RewoundError(absl::StrCat("the store was set back to sequence ", now.answered.sequence,
                                     ": materialize or roll back first"));
  }
  if (now.empty) {
    return absl::FailedPreconditionError("the store is empty: refresh the whole store first");
  }
  if (resend) {
    return now.in_flight.has_value() ? absl::OkStatus()
                                     : absl::FailedPreconditionError("no step is in flight");
  }
  if (now.in_flight.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("step ", now.in_flight->sequence,
                     " was given up and parameters may be mixed: resend it, materialize or roll "
                     "back"));
  }
  if (now.stale) {
    return absl::FailedPreconditionError(
        "the parameters are not those of the store: materialize first");
  }
  if (now.stale_tensors > 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the mains of ", now.stale_tensors,
                     " tensors were written and their parameters are older: materialize them, or "
                     "refresh them if the parameters count"));
  }
  return absl::OkStatus();
}

template <typename Request>
void StoreClient::Launch(bool resend, Request& request) {
  absl::MutexLock lock(&state_mutex_);
  if (!resend) {
    standing_.in_flight = Position{standing_.answered.sequence + 1, RandomBytes16()};
  }
  blob_in_flight_ = request.blob();
  request.set_sequence(standing_.in_flight->sequence);
  request.set_step_id(standing_.in_flight->step_id);
  request.set_follows(standing_.answered.step_id);
}

void StoreClient::Land(const absl::Status& status, bool parameters_written) {
  absl::MutexLock lock(&state_mutex_);
  if (!standing_.in_flight.has_value()) {
    return;  // a reconnect found the store set back
  }
  if (status.ok()) {
    standing_.answered = *standing_.in_flight;
    standing_.in_flight.reset();
    opened_.set_blob(std::move(blob_in_flight_));
    return;
  }
  // A daemon that refused or failed a step for good left the state as it was; then only the
  // parameters can be mixed. Of a call that broke off nothing is known.
  if (OutcomeKnown(status) && !parameters_written) {
    standing_.in_flight.reset();
  }
}

absl::Status StoreClient::UseGradientTypes(const std::vector<moment_type>& types) {
  if (types == gradient_types_) {
    return absl::OkStatus();
  }
  gradient_types_ = types;
  return Call([this](Connection&, grpc::ClientContext*) {
    call_mutex_.AssertHeld();
    return AttachHere();
  });
}

absl::Status StoreClient::StreamStep(Connection& connection, grpc::ClientContext* context,
                                     const v1::StepRequest& request,
                                     const moment_step_options& options, v1::StepDone* done) {
  auto stream = connection.stub().Step(context, request);
  v1::StepResponse event;
  bool finished = false;
  while (stream->Read(&event)) {
    if (event.has_done()) {
      *done = std::move(*event.mutable_done());
      finished = true;
    } else if (event.has_bucket_final() && options.bucket_final != nullptr) {
      const v1::BucketFinal& bucket = event.bucket_final();
      const std::vector<moment_run> runs = tensors_.FromStore(bucket.tensors());
      options.bucket_final(options.context, bucket.member(), bucket.bucket(), runs.data(),
                           runs.size());
    }
  }
  const absl::Status status = FromGrpc(stream->Finish());
  if (status.ok() && !finished) {
    return absl::UnavailableError("the daemon ended a step without its answer");
  }
  return finished ? absl::OkStatus() : status;
}

absl::Status StoreClient::ShareGradients(Connection& connection,
                                         const std::vector<Buffer>& gradients,
                                         v1::StepRequest& request) {
  absl::StatusOr<SharedBuffers> shared = connection.gpu().Describe(
      GpuRegions::Holder::kStep, gradients, static_cast<uint32_t>(shared_.regions.size()) + 1);
  MOMENT_CLIENT_RETURN_IF_ERROR(shared.status());
  *request.mutable_regions() = shared->regions;
  *request.mutable_gradients() = shared->locations;
  return absl::OkStatus();
}

bool StoreClient::MayHaveWritten(const absl::Status& status) const {
  if (status.ok() || shared_.locations.empty()) {
    return false;
  }
  // With all of them shared, these come from the checks before anything runs.
  const bool all = static_cast<size_t>(shared_.locations.size()) == tensors_.size();
  return !all || !(absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
                   absl::IsUnimplemented(status));
}

absl::StatusOr<v1::StepDone> StoreClient::Step(const moment_step_options& options) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  const bool resend = options.resend != 0;
  if (!attached_) {
    return absl::FailedPreconditionError("no parameters are attached");
  }
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckCanStep(resend));
  absl::StatusOr<StepPlan> plan = MakeStepPlan(tensors_, options);
  MOMENT_CLIENT_RETURN_IF_ERROR(plan.status());
  MOMENT_CLIENT_RETURN_IF_ERROR(UseGradientTypes(plan->gradient_types));
  MOMENT_CLIENT_RETURN_IF_ERROR(AttachMoved());
  FindGpus(plan->gradients);
  Launch(resend, plan->request);
  const uint64_t writes_before = ParameterWrites();
  table_->BindGradients(plan->gradients);
  v1::StepDone done;
  const absl::Status status = Call([&](Connection& connection, grpc::ClientContext* context) {
    call_mutex_.AssertHeld();
    plan->request.set_session(connection.session());
    MOMENT_CLIENT_RETURN_IF_ERROR(ShareGradients(connection, plan->gradients, plan->request));
    return StreamStep(connection, context, plan->request, options, &done);
  });
  table_->ClearGradients();
  Land(status, resend || ParameterWrites() != writes_before || MayHaveWritten(status));
  MOMENT_CLIENT_RETURN_IF_ERROR(status);
  return done;
}

absl::StatusOr<uint64_t> StoreClient::Skip(const std::string& blob) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckCanStep(false));
  v1::SkipRequest request;
  request.set_blob(blob);
  Launch(false, request);
  v1::SkipResponse response;
  const absl::Status status = Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    return FromGrpc(connection.stub().Skip(context, request, &response));
  });
  Land(status, false);
  MOMENT_CLIENT_RETURN_IF_ERROR(status);
  return response.sequence();
}

absl::StatusOr<v1::CommitInfo> StoreClient::Flush() {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  const Standing now = standing();
  if (now.empty || now.rewound || now.in_flight.has_value()) {
    MOMENT_CLIENT_RETURN_IF_ERROR(CheckCanStep(false));
  }
  v1::FlushRequest request;
  request.set_sequence(now.answered.sequence);
  v1::FlushResponse response;
  MOMENT_CLIENT_RETURN_IF_ERROR(Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    return FromGrpc(connection.stub().Flush(context, request, &response));
  }));
  return response.commit();
}

}  // namespace moment::client
