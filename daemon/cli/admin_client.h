#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "daemon/cli/cancellation.h"
#include "moment/v1/admin.grpc.pb.h"

namespace moment::cli {

// The operator's side of admin.sock. Each call but Verify ends within the timeout. Used by one
// thread.
class AdminClient {
 public:
  static absl::StatusOr<std::unique_ptr<AdminClient>> Connect(const std::string& socket_path,
                                                              absl::Duration timeout);

  const std::string& socket_path() const { return socket_path_; }

  absl::StatusOr<v1::StatusResponse> Status();
  absl::StatusOr<v1::ListResponse> List();
  absl::StatusOr<v1::DescribeResponse> Describe(const v1::StoreName& name);
  // `pin`: an id, or the beginning of one.
  absl::StatusOr<v1::DropResponse> DropPin(const v1::StoreName& name, const std::string& pin);
  // Calls `on_response` for each message of the stream. It may take as long as the store is large;
  // `cancellation` ends it (CANCELLED).
  absl::Status Verify(const v1::StoreName& name, Cancellation& cancellation,
                      const std::function<void(const v1::VerifyResponse&)>& on_response);

 private:
  AdminClient(std::string socket_path, absl::Duration timeout,
              std::unique_ptr<v1::Admin::Stub> stub);

  std::string socket_path_;
  absl::Duration timeout_;
  std::unique_ptr<v1::Admin::Stub> stub_;
};

}  // namespace moment::cli
