#include "daemon/cli/admin_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/cli/channel.h"

namespace moment::cli {

AdminClient::AdminClient(std::string socket_path, absl::Duration timeout,
                         std::unique_ptr<v1::Admin::Stub> stub)
    : socket_path_(std::move(socket_path)), timeout_(timeout), stub_(std::move(stub)) {}

absl::StatusOr<std::unique_ptr<AdminClient>> AdminClient::Connect(const std::string& socket_path,
                                                                  absl::Duration timeout) {
  MOMENT_ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                          ConnectUnix(socket_path, timeout));
  return std::unique_ptr<AdminClient>(
      new AdminClient(socket_path, timeout, v1::Admin::NewStub(channel)));
}

absl::StatusOr<v1::StatusResponse> AdminClient::Status() {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  v1::StatusResponse response;
  MOMENT_RETURN_IF_ERROR(FromGrpc(stub_->Status(&context, {}, &response), socket_path_));
  return response;
}

absl::StatusOr<v1::ListResponse> AdminClient::List() {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  v1::ListResponse response;
  MOMENT_RETURN_IF_ERROR(FromGrpc(stub_->List(&context, {}, &response), socket_path_));
  return response;
}

absl::StatusOr<v1::DescribeResponse> AdminClient::Describe(const v1::StoreName& name) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  v1::DescribeRequest request;
  *request.mutable_name() = name;
  v1::DescribeResponse response;
  MOMENT_RETURN_IF_ERROR(FromGrpc(stub_->Describe(&context, request, &response), socket_path_));
  return response;
}

absl::StatusOr<v1::DropResponse> AdminClient::DropPin(const v1::StoreName& name,
                                                      const std::string& pin) {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  v1::DropRequest request;
  *request.mutable_name() = name;
  request.set_pin(pin);
  v1::DropResponse response;
  MOMENT_RETURN_IF_ERROR(FromGrpc(stub_->Drop(&context, request, &response), socket_path_));
  return response;
}

absl::Status AdminClient::Verify(
    const v1::StoreName& name, Cancellation& cancellation,
    const std::function<void(const v1::VerifyResponse&)>& on_response) {
  grpc::ClientContext context;
  const Cancellation::Scope scope(cancellation, [&context] { context.TryCancel(); });
  v1::VerifyRequest request;
  *request.mutable_name() = name;
  const std::unique_ptr<grpc::ClientReader<v1::VerifyResponse>> reader =
      stub_->Verify(&context, request);
  v1::VerifyResponse response;
  bool done = false;
  while (reader->Read(&response)) {
    done = done || response.done();
    on_response(response);
  }
  MOMENT_RETURN_IF_ERROR(FromGrpc(reader->Finish(), socket_path_));
  if (!done) {
    return absl::InternalError(
        absl::StrCat("momentd at ", socket_path_, " ended the verification before its end"));
  }
  return absl::OkStatus();
}

}  // namespace moment::cli
