#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/session/session_manager.h"
#include "moment/v1/optimizer.grpc.pb.h"

namespace moment::service {

// Who is at the other end of a connection, by its gRPC name.
using FindPeer = std::function<absl::StatusOr<session::Peer>(const std::string& connection)>;

// The trainer's calls: finds the session and hands over. Blocking calls run on gRPC's threads, the
// session stream by callbacks.
class OptimizerService : public v1::Optimizer::WithCallbackMethod_Session<v1::Optimizer::Service> {
 public:
  OptimizerService(session::SessionManager& sessions, FindPeer find_peer)
      : sessions_(sessions), find_peer_(std::move(find_peer)) {}

  grpc::Status Open(grpc::ServerContext* context, const v1::OpenRequest* request,
                    v1::OpenResponse* response) override;
  grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionEvent>* Session(
      grpc::CallbackServerContext* context) override;
  grpc::Status Attach(grpc::ServerContext* context, const v1::AttachRequest* request,
                      v1::AttachResponse* response) override;
  grpc::Status Detach(grpc::ServerContext* context, const v1::DetachRequest* request,
                      v1::DetachResponse* response) override;
  grpc::Status Step(grpc::ServerContext* context, const v1::StepRequest* request,
                    grpc::ServerWriter<v1::StepResponse>* writer) override;
  grpc::Status Skip(grpc::ServerContext* context, const v1::SkipRequest* request,
                    v1::SkipResponse* response) override;
  grpc::Status Flush(grpc::ServerContext* context, const v1::FlushRequest* request,
                     v1::FlushResponse* response) override;
  grpc::Status Refresh(grpc::ServerContext* context, const v1::RefreshRequest* request,
                       v1::RefreshResponse* response) override;
  grpc::Status Materialize(grpc::ServerContext* context, const v1::MaterializeRequest* request,
                           v1::MaterializeResponse* response) override;
  grpc::Status Rollback(grpc::ServerContext* context, const v1::RollbackRequest* request,
                        v1::RollbackResponse* response) override;
  grpc::Status Pin(grpc::ServerContext* context, const v1::PinRequest* request,
                   v1::PinResponse* response) override;
  grpc::Status Unpin(grpc::ServerContext* context, const v1::UnpinRequest* request,
                     v1::UnpinResponse* response) override;
  grpc::Status GetOperation(grpc::ServerContext* context, const v1::GetOperationRequest* request,
                            v1::Operation* response) override;
  grpc::Status Close(grpc::ServerContext* context, const v1::CloseRequest* request,
                     v1::CloseResponse* response) override;

  grpc::Status Save(grpc::ServerContext* context, const v1::SaveRequest* request,
                    v1::Operation* response) override;
  grpc::Status Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                    v1::Operation* response) override;
  grpc::Status ReadTensor(grpc::ServerContext* context, const v1::ReadTensorRequest* request,
                          v1::ReadTensorResponse* response) override;
  grpc::Status WriteTensor(grpc::ServerContext* context, const v1::WriteTensorRequest* request,
                           v1::WriteTensorResponse* response) override;
  grpc::Status ResetMoments(grpc::ServerContext* context, const v1::ResetMomentsRequest* request,
                            v1::ResetMomentsResponse* response) override;
  grpc::Status Digest(grpc::ServerContext* context, const v1::DigestRequest* request,
                      v1::DigestResponse* response) override;

 private:
  // The session that a request names; PERMISSION_DENIED if another user's process opened it.
  template <typename Request>
  absl::StatusOr<std::shared_ptr<session::Session>> Find(const std::string& connection,
                                                         const Request& request) const;

  session::SessionManager& sessions_;
  const FindPeer find_peer_;
};

}  // namespace moment::service
