// Pins of a StoreClient.
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/errors.h"
#include "client/src/store_client.h"

namespace moment::client {

absl::StatusOr<std::unique_ptr<Pin>> StoreClient::CreatePin() {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  const Standing now = standing();
  if (now.empty || now.rewound || now.in_flight.has_value()) {
    MOMENT_CLIENT_RETURN_IF_ERROR(CheckCanStep(false));
  }
  v1::PinRequest request;
  request.set_operation(NewOperation());
  std::unique_ptr<Pin> pin;
  const absl::Status status = Call([&](Connection& connection, grpc::ClientContext* context) {
    request.set_session(connection.session());
    v1::PinResponse response;
    MOMENT_CLIENT_RETURN_IF_ERROR(FromGrpc(connection.stub().Pin(context, request, &response)));
    auto files = connection.TakePin(response.pin(), static_cast<size_t>(response.buckets_size()));
    MOMENT_CLIENT_RETURN_IF_ERROR(files.status());
    auto made = Pin::Make(response, tensors_, *std::move(files), connection.weak_from_this());
    MOMENT_CLIENT_RETURN_IF_ERROR(made.status());
    pin = *std::move(made);
    return absl::OkStatus();
  });
  if (!status.ok()) {
    GiveUpPin(request.operation());
    return status;
  }
  return pin;
}

// The daemon may have made the pin, or be about to, although the call was cancelled or its files
// did not come.
void StoreClient::GiveUpPin(const std::string& id) {
  std::shared_ptr<Connection> connection;
  {
    absl::MutexLock state(&state_mutex_);
    connection = connection_;
  }
  if (connection != nullptr) {
    Unpin(*connection, id).IgnoreError();
  }
}

}  // namespace moment::client
