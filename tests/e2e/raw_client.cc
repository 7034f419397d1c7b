#include "tests/e2e/raw_client.h"

#include <grpcpp/security/credentials.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "tests/support/catch.h"

namespace moment::e2e {

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::shared_ptr<grpc::Channel> Dial(const std::string& address) {
  return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

grpc::health::v1::HealthCheckResponse::ServingStatus Health(const std::string& address,
                                                            const std::string& service) {
  const auto stub = grpc::health::v1::Health::NewStub(Dial(address));
  grpc::ClientContext context;
  RawClient::SetDeadline(context);
  grpc::health::v1::HealthCheckRequest request;
  request.set_service(service);
  grpc::health::v1::HealthCheckResponse response;
  const grpc::Status status = stub->Check(&context, request, &response);
  INFO(status.error_message());
  REQUIRE(status.ok());
  return response.status();
}

v1::StatusResponse StatusOf(const Daemon& daemon) {
  const auto stub = v1::Admin::NewStub(Dial("unix:" + daemon.socket("admin.sock")));
  grpc::ClientContext context;
  RawClient::SetDeadline(context);
  v1::StatusResponse response;
  REQUIRE(stub->Status(&context, {}, &response).ok());
  return response;
}

v1::OpenRequest OpenOf(const std::string& job, int tensors, uint64_t elements) {
  v1::OpenRequest request;
  request.mutable_name()->set_job(job);
  request.mutable_name()->set_role("model");
  request.add_members()->set_name("opt0_0");
  for (int i = 0; i < tensors; ++i) {
    v1::Tensor* tensor = request.add_tensors();
    tensor->set_name(absl::StrCat("layer.", i));
    tensor->add_shape(elements);
    tensor->set_parameter_type(v1::DATA_TYPE_FLOAT32);
  }
  return request;
}

RawClient::RawClient(const Daemon& daemon) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(64 << 20);
  stub = v1::Optimizer::NewStub(grpc::CreateCustomChannel(
      "unix:" + daemon.socket(), grpc::InsecureChannelCredentials(), arguments));
  admin = v1::Admin::NewStub(Dial("unix:" + daemon.socket("admin.sock")));
  descriptors = daemon.socket("fd.sock");
}

void RawClient::SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  context.set_wait_for_ready(true);
}

grpc::Status RawClient::Open(const v1::OpenRequest& request, v1::OpenResponse& response) {
  grpc::ClientContext context;
  SetDeadline(context);
  return stub->Open(&context, request, &response);
}

void RawClient::Close(const v1::OpenResponse& opened) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::CloseRequest request;
  request.set_session(opened.session());
  v1::CloseResponse response;
  REQUIRE(stub->Close(&context, request, &response).ok());
}

grpc::Status RawClient::Attach(const v1::AttachRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::AttachResponse response;
  return stub->Attach(&context, request, &response);
}

void RawClient::Attach(const v1::OpenResponse& opened) {
  v1::AttachRequest request;
  request.set_session(opened.session());
  request.set_generation(1);
  const grpc::Status status = Attach(request);
  INFO(status.error_message());
  REQUIRE(status.ok());
}

grpc::Status RawClient::Refresh(const v1::RefreshRequest& request) {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::RefreshResponse response;
  return stub->Refresh(&context, request, &response);
}

grpc::Status RawClient::Step(const v1::StepRequest& request, v1::StepDone& done) {
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stream = stub->Step(&context, request);
  v1::StepResponse event;
  while (stream->Read(&event)) {
    if (event.has_done()) {
      done = event.done();
    }
  }
  return stream->Finish();
}

grpc::Status RawClient::Skip(const v1::SkipRequest& request, v1::SkipResponse& response) {
  grpc::ClientContext context;
  SetDeadline(context);
  return stub->Skip(&context, request, &response);
}

std::vector<base::UniqueFd> RawClient::Ask(const v1::OpenResponse& opened, uint32_t what,
                                           uint32_t kind, int descriptor,
                                           v1::DescriptorReply& reply) const {
  const base::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, descriptors.c_str(), sizeof(address.sun_path) - 1);
  REQUIRE(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  v1::DescriptorRequest request = {};
  request.magic = MOMENT_DESCRIPTORS_MAGIC;
  request.version = 1;
  request.request = what;
  request.kind = kind;
  request.count = descriptor >= 0 ? 1 : 0;
  std::memcpy(request.token, opened.token().data(), sizeof(request.token));
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 8)] = {};
  iovec data = {&request, sizeof(request)};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
  }
  REQUIRE(::sendmsg(socket.get(), &message, 0) == sizeof(request));
  data = {&reply, sizeof(reply)};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  REQUIRE(::recvmsg(socket.get(), &message, 0) == sizeof(reply));
  std::vector<base::UniqueFd> received;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    for (size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      received.emplace_back(fd);
    }
  }
  return received;
}

}  // namespace moment::e2e
