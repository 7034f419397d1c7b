#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/base/fd.h"
#include "grpc/health/v1/health.pb.h"
#include "moment/v1/admin.grpc.pb.h"
#include "moment/v1/optimizer.grpc.pb.h"
#include "proto/moment/v1/descriptors.h"
#include "tests/e2e/daemon_process.h"

namespace moment::e2e {

bool Has(const std::string& text, const std::string& part);

std::shared_ptr<grpc::Channel> Dial(const std::string& address);

// grpc.health.v1 at an address, as a probe asks: one call over a connection of its own.
grpc::health::v1::HealthCheckResponse::ServingStatus Health(const std::string& address,
                                                            const std::string& service);

v1::StatusResponse StatusOf(const Daemon& daemon);

// A rank of so many fp32 tensors "layer.<i>" of `elements` each.
v1::OpenRequest OpenOf(const std::string& job, int tensors = 1, uint64_t elements = 64);

// Calls to one daemon as they are on the wire, without the client library.
struct RawClient {
  explicit RawClient(const Daemon& daemon);

  // A minute, and until the daemon answers.
  static void SetDeadline(grpc::ClientContext& context);

  grpc::Status Open(const v1::OpenRequest& request, v1::OpenResponse& response);
  void Close(const v1::OpenResponse& opened);
  grpc::Status Attach(const v1::AttachRequest& request);
  // Attaches with nothing but the ring.
  void Attach(const v1::OpenResponse& opened);
  grpc::Status Refresh(const v1::RefreshRequest& request);
  grpc::Status Step(const v1::StepRequest& request, v1::StepDone& done);
  grpc::Status Skip(const v1::SkipRequest& request, v1::SkipResponse& response);

  // One request at fd.sock; the descriptors that come back.
  std::vector<base::UniqueFd> Ask(const v1::OpenResponse& opened, uint32_t what, uint32_t kind,
                                  int descriptor, v1::DescriptorReply& reply) const;

  std::unique_ptr<v1::Optimizer::Stub> stub;
  std::unique_ptr<v1::Admin::Stub> admin;
  std::string descriptors;
};

}  // namespace moment::e2e
