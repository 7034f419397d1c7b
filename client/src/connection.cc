#include "client/src/connection.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include <grpcpp/create_channel.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/src/errors.h"
#include "client/src/process.h"
#include "client/src/socket_path.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace moment::client {
namespace {

constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;
constexpr int kMaxBackoffMs = 1'000;
constexpr absl::Duration kHealthTimeout = absl::Milliseconds(100);
constexpr absl::Duration kHealthPause = absl::Milliseconds(50);

std::chrono::system_clock::time_point Deadline(absl::Duration timeout) {
  return absl::ToChronoTime(absl::Now() + timeout);
}

}  // namespace

std::shared_ptr<grpc::Channel> Dial(const std::string& socket_path) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  // A stopped daemon sends no end of the connection: only pings notice it.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // gRPC's own retries would hide a lost step from the position check of a reconnect.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  const SignalsBlocked blocked;
  return grpc::CreateCustomChannel(absl::StrCat("unix:", socket_path),
                                   grpc::InsecureChannelCredentials(), arguments);
}

absl::Status AwaitHealth(const std::string& socket_path, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  const SignalsBlocked blocked;
  const std::shared_ptr<grpc::Channel> channel = Dial(socket_path);
  const auto stub = grpc::health::v1::Health::NewStub(channel);
  for (;;) {
    MOMENT_CLIENT_RETURN_IF_ERROR(CheckSocketFile(socket_path));
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(std::max(deadline, absl::Now() + kHealthTimeout)));
    context.set_wait_for_ready(absl::Now() < deadline);
    grpc::health::v1::HealthCheckResponse response;
    const absl::Status status = FromGrpc(stub->Check(&context, {}, &response));
    if (status.ok() && response.status() == grpc::health::v1::HealthCheckResponse::SERVING) {
      return status;
    }
    if (absl::Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat("no daemon serves at ", socket_path,
                                                 status.ok() ? "" : ": ", status.message()));
    }
    absl::SleepFor(kHealthPause);
  }
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const std::string& socket_path,
                                                             const v1::OpenRequest& request,
                                                             absl::Duration connect_timeout,
                                                             Canceller& canceller) {
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckSocketFile(socket_path));
  const SignalsBlocked blocked;
  std::unique_ptr<Connection> connection(new Connection());
  connection->channel_ = Dial(socket_path);
  connection->stub_ = v1::Optimizer::NewStub(connection->channel_);
  if (!connection->channel_->WaitForConnected(Deadline(connect_timeout))) {
    return absl::UnavailableError(
        absl::StrCat("no daemon answers at ", socket_path,
                     "; start momentd, or give the right path (MOMENTD_SOCKET)"));
  }
  {
    CancellableContext context(canceller);
    MOMENT_CLIENT_RETURN_IF_ERROR(
        FromGrpc(connection->stub_->Open(context.get(), request, &connection->opened_)));
  }
  if (connection->opened_.tensor_index_size() != request.tensors_size()) {
    return absl::InternalError("the daemon answered an Open without an index for every tensor");
  }
  absl::Duration lease = absl::Seconds(connection->opened_.lease_seconds());
  if (lease <= absl::ZeroDuration()) {
    lease = absl::Seconds(30);
  }
  auto keeper = SessionKeeper::Start(*connection->stub_, connection->session(), lease);
  if (!keeper.ok()) {
    return keeper.status();
  }
  connection->keeper_ = *std::move(keeper);
  connection->door_ = std::make_unique<DescriptorDoor>(DescriptorSocketPath(socket_path),
                                                       connection->opened_.token());
  connection->ForgetGpu();
  // Liveness has the stream and the lease as well: an old kernel without pidfds is no reason to
  // fail.
  const absl::Status offered = connection->door_->OfferPidfd();
  if (offered.code() == absl::StatusCode::kUnavailable) {
    return offered;
  }
  return connection;
}

void Connection::EndSession(const std::string& socket_path, const std::string& session,
                            absl::Duration timeout) {
  const auto stub = v1::Optimizer::NewStub(Dial(socket_path));
  grpc::ClientContext context;
  context.set_deadline(Deadline(timeout));
  v1::CloseRequest request;
  request.set_session(session);
  v1::CloseResponse response;
  const SignalsBlocked blocked;
  // Refused when the session is gone already, which is what is wanted.
  stub->Close(&context, request, &response).error_code();
}

void Connection::ForgetGpu() {
  gpu_ = std::make_unique<GpuRegions>(
      opened_.device(),
      [this](const std::vector<UniqueFd>& chunks) { return door_->OfferMemory(chunks); });
}

void Connection::StopRing() {
  if (ring_ != nullptr) {
    writes_of_former_rings_ += ring_->parameter_writes();
    ring_.reset();
  }
}

absl::Status Connection::Attach(v1::AttachRequest request, TensorTable* table,
                                Canceller& canceller) {
  request.set_session(session());
  v1::AttachResponse response;
  StopRing();
  transport_.clear();
  {
    CancellableContext context(canceller);
    if (absl::Status status = FromGrpc(stub_->Attach(context.get(), request, &response));
        !status.ok()) {
      ForgetGpu();  // the daemon holds none of it
      return status;
    }
  }
  gpu_->Release(GpuRegions::Holder::kStep);
  if (response.ring_slots() == 0) {
    return absl::OkStatus();
  }
  absl::StatusOr<RingDescriptors> descriptors = door_->TakeRing();
  if (!descriptors.ok()) {
    return descriptors.status();
  }
  absl::StatusOr<std::unique_ptr<RingExecutor>> ring =
      RingExecutor::Start(*std::move(descriptors), table);
  if (!ring.ok()) {
    return ring.status();
  }
  ring_ = *std::move(ring);
  std::set<std::string> transports(response.transports().begin(), response.transports().end());
  if (request.parameters_size() < opened_.tensor_index_size()) {
    transports.insert("ring");
  }
  transport_ = absl::StrJoin(transports, ", ");
  return absl::OkStatus();
}

absl::Status Connection::Detach(uint64_t generation, Canceller& canceller) {
  v1::DetachRequest request;
  request.set_session(session());
  request.set_generation(generation);
  v1::DetachResponse response;
  CancellableContext context(canceller);
  const absl::Status status = FromGrpc(stub_->Detach(context.get(), request, &response));
  StopRing();
  ForgetGpu();
  return status;
}

uint64_t Connection::parameter_writes() const {
  return writes_of_former_rings_ + (ring_ == nullptr ? 0 : ring_->parameter_writes());
}

}  // namespace moment::client
