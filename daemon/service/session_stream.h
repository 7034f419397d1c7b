#pragma once

#include <grpcpp/support/server_callback.h>

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "daemon/session/session.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::service {

using FindSession = std::function<absl::StatusOr<std::shared_ptr<session::Session>>(
    const v1::SessionRequest& request)>;

// The server's side of Optimizer.Session: the first message names the session, later ones renew its
// lease; the end of the stream ends the session, and the other way round. Owns itself.
grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionEvent>* StartSessionStream(FindSession find);

}  // namespace moment::service
