#include "daemon/service/optimizer_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/service/session_stream.h"
#include "daemon/service/status.h"

namespace moment::service {
namespace {

// Puts a result into the response.
template <typename Response>
grpc::Status Answer(absl::StatusOr<Response> result, Response* response) {
  if (!result.ok()) {
    return ToGrpc(result.status());
  }
  *response = *std::move(result);
  return grpc::Status::OK;
}

grpc::Status Unimplemented(absl::string_view call, absl::string_view instead) {
  return grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                      absl::StrCat(call, " is not part of this version: ", instead));
}

// Sends what the step reports until it ends. A broken stream ends nothing: the step goes on, and
// the client's repetition joins it.
absl::Status Follow(const session::Session& session, const session::Operation& step,
                    grpc::ServerWriter<v1::StepResponse>& writer) {
  size_t seen = 0;
  for (;;) {
    const session::Operation::Progress progress = step.WaitBeyond(seen);
    for (const uint32_t bucket : progress.final_buckets) {
      v1::StepResponse response;
      *response.mutable_bucket_final() = session.DescribeBucket(bucket);
      writer.Write(response);
    }
    seen += progress.final_buckets.size();
    if (progress.done) {
      break;
    }
  }
  MOMENT_RETURN_IF_ERROR(step.Wait());
  v1::StepResponse response;
  *response.mutable_done() = step.step();
  writer.Write(response);
  return absl::OkStatus();
}

}  // namespace

template <typename Request>
absl::StatusOr<std::shared_ptr<session::Session>> OptimizerService::Find(
    const std::string& connection, const Request& request) const {
  MOMENT_ASSIGN_OR_RETURN(const session::Peer peer, find_peer_(connection));
  MOMENT_ASSIGN_OR_RETURN(std::shared_ptr<session::Session> session,
                          sessions_.Find(request.session()));
  if (peer.uid != session->uid() && peer.uid != 0) {
    return absl::PermissionDeniedError(absl::StrCat("session ", request.session(), " is of user ",
                                                    session->uid(), ", not of ", peer.uid));
  }
  return session;
}

grpc::Status OptimizerService::Open(grpc::ServerContext* context, const v1::OpenRequest* request,
                                    v1::OpenResponse* response) {
  const absl::StatusOr<session::Peer> peer = find_peer_(context->peer());
  if (!peer.ok()) {
    return ToGrpc(peer.status());
  }
  return Answer(sessions_.Open(*request, *peer), response);
}

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionEvent>* OptimizerService::Session(
    grpc::CallbackServerContext* context) {
  return StartSessionStream(
      [this, connection = context->peer()](const v1::SessionRequest& request) {
        return Find(connection, request);
      });
}

grpc::Status OptimizerService::Attach(grpc::ServerContext* context,
                                      const v1::AttachRequest* request,
                                      v1::AttachResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->Attach(*request), response) : ToGrpc(session.status());
}

grpc::Status OptimizerService::Detach(grpc::ServerContext* context,
                                      const v1::DetachRequest* request, v1::DetachResponse*) {
  const auto session = Find(context->peer(), *request);
  return ToGrpc(session.ok() ? (*session)->Detach(*request) : session.status());
}

grpc::Status OptimizerService::Step(grpc::ServerContext* context, const v1::StepRequest* request,
                                    grpc::ServerWriter<v1::StepResponse>* writer) {
  const auto session = Find(context->peer(), *request);
  if (!session.ok()) {
    return ToGrpc(session.status());
  }
  const absl::StatusOr<std::shared_ptr<session::Operation>> step = (*session)->Step(*request);
  return ToGrpc(step.ok() ? Follow(**session, **step, *writer) : step.status());
}

grpc::Status OptimizerService::Skip(grpc::ServerContext* context, const v1::SkipRequest* request,
                                    v1::SkipResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->Skip(*request), response) : ToGrpc(session.status());
}

grpc::Status OptimizerService::Flush(grpc::ServerContext* context, const v1::FlushRequest* request,
                                     v1::FlushResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->Flush(*request), response) : ToGrpc(session.status());
}

grpc::Status OptimizerService::Refresh(grpc::ServerContext* context,
                                       const v1::RefreshRequest* request,
                                       v1::RefreshResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->Refresh(*request), response) : ToGrpc(session.status());
}

grpc::Status OptimizerService::Materialize(grpc::ServerContext* context,
                                           const v1::MaterializeRequest* request,
                                           v1::MaterializeResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->Materialize(*request), response)
                      : ToGrpc(session.status());
}

grpc::Status OptimizerService::Rollback(grpc::ServerContext* context,
                                        const v1::RollbackRequest* request,
                                        v1::RollbackResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->Rollback(*request), response) : ToGrpc(session.status());
}

grpc::Status OptimizerService::Pin(grpc::ServerContext* context, const v1::PinRequest* request,
                                   v1::PinResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->Pin(*request), response) : ToGrpc(session.status());
}

grpc::Status OptimizerService::Unpin(grpc::ServerContext* context, const v1::UnpinRequest* request,
                                     v1::UnpinResponse*) {
  const auto session = Find(context->peer(), *request);
  return ToGrpc(session.ok() ? (*session)->Unpin(*request) : session.status());
}

grpc::Status OptimizerService::GetOperation(grpc::ServerContext* context,
                                            const v1::GetOperationRequest* request,
                                            v1::Operation* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->GetOperation(request->operation()), response)
                      : ToGrpc(session.status());
}

grpc::Status OptimizerService::Close(grpc::ServerContext* context, const v1::CloseRequest* request,
                                     v1::CloseResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->Close(), response) : ToGrpc(session.status());
}

grpc::Status OptimizerService::Save(grpc::ServerContext*, const v1::SaveRequest*, v1::Operation*) {
  return Unimplemented("Save", "Flush makes the state durable in its store");
}

grpc::Status OptimizerService::Load(grpc::ServerContext*, const v1::LoadRequest*, v1::Operation*) {
  return Unimplemented("Load", "a store resumes from its own commits");
}

grpc::Status OptimizerService::ReadTensor(grpc::ServerContext* context,
                                          const v1::ReadTensorRequest* request,
                                          v1::ReadTensorResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->ReadTensor(*request), response)
                      : ToGrpc(session.status());
}

grpc::Status OptimizerService::WriteTensor(grpc::ServerContext* context,
                                           const v1::WriteTensorRequest* request,
                                           v1::WriteTensorResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->WriteTensor(*request), response)
                      : ToGrpc(session.status());
}

grpc::Status OptimizerService::ResetMoments(grpc::ServerContext* context,
                                            const v1::ResetMomentsRequest* request,
                                            v1::ResetMomentsResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->ResetMoments(*request), response)
                      : ToGrpc(session.status());
}

grpc::Status OptimizerService::Digest(grpc::ServerContext* context,
                                      const v1::DigestRequest* request,
                                      v1::DigestResponse* response) {
  const auto session = Find(context->peer(), *request);
  return session.ok() ? Answer((*session)->Digest(*request), response) : ToGrpc(session.status());
}

}  // namespace moment::service
