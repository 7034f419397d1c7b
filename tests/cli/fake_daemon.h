#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "moment/v1/admin.grpc.pb.h"

namespace moment::cli {

// Answers what a test wants, as a daemon would on its socket. Set the answers before the first
// call.
class FakeDaemon : public v1::Admin::Service, public grpc::health::v1::Health::Service {
 public:
  // Listens at `address`: "unix:/path" or "127.0.0.1:0" (port() says which).
  explicit FakeDaemon(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(static_cast<v1::Admin::Service*>(this));
    builder.RegisterService(static_cast<grpc::health::v1::Health::Service*>(this));
    server_ = builder.BuildAndStart();
  }
  ~FakeDaemon() override { server_->Shutdown(std::chrono::system_clock::now()); }

  bool listening() const { return server_ != nullptr; }
  int port() const { return port_; }

  grpc::Status failure;  // what every admin call answers, unless OK
  v1::StatusResponse status;
  v1::ListResponse list;
  v1::DescribeResponse describe;
  std::vector<v1::VerifyResponse> verify;
  v1::DropRequest dropped;  // the last one that came
  grpc::Status verify_end;
  bool verify_hangs = false;  // after its messages, until the client cancels
  absl::Notification verify_arrived;
  grpc::health::v1::HealthCheckResponse::ServingStatus health =
      grpc::health::v1::HealthCheckResponse::SERVING;

  grpc::Status Status(grpc::ServerContext*, const v1::StatusRequest*,
                      v1::StatusResponse* response) override {
    *response = status;
    return failure;
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListRequest*,
                    v1::ListResponse* response) override {
    *response = list;
    return failure;
  }
  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override {
    if (request->name().job() != describe.store().name().job()) {
      return {grpc::StatusCode::NOT_FOUND, "no store of that name"};
    }
    *response = describe;
    return failure;
  }
  grpc::Status Verify(grpc::ServerContext* context, const v1::VerifyRequest*,
                      grpc::ServerWriter<v1::VerifyResponse>* writer) override {
    for (const v1::VerifyResponse& response : verify) {
      writer->Write(response);
    }
    if (!verify_arrived.HasBeenNotified()) {
      verify_arrived.Notify();
    }
    while (verify_hangs && !context->IsCancelled() && writer->Write(v1::VerifyResponse())) {
    }
    return verify_end;
  }
  grpc::Status Drop(grpc::ServerContext*, const v1::DropRequest* request,
                    v1::DropResponse* response) override {
    dropped = *request;
    response->set_pin(request->pin() + "0000");
    response->set_freed_bytes(3 << 20);
    return failure;
  }
  grpc::Status Check(grpc::ServerContext*, const grpc::health::v1::HealthCheckRequest* request,
                     grpc::health::v1::HealthCheckResponse* response) override {
    if (request->service() == "unknown") {
      return {grpc::StatusCode::NOT_FOUND, "unknown service"};
    }
    response->set_status(health);
    return grpc::Status::OK;
  }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace moment::cli
