#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "grpc/health/v1/health.grpc.pb.h"

namespace moment::rpc {

// What each health service answers: "" (the daemon), "liveness", "readiness" and the path of each
// state directory. Reading touches atomics alone. Thread-safe.
class HealthBoard {
 public:
  using Listener = std::function<void()>;

  explicit HealthBoard(const std::vector<std::string>& services);  // none serving

  void Set(const std::string& service, bool serving);
  // nullopt for a service that is not known.
  absl::optional<bool> Get(const std::string& service) const;

  // Calls `listener` after each change, until the returned handle is destroyed (a call may still be
  // under way then).
  std::shared_ptr<Listener> Subscribe(Listener listener);

 private:
  std::map<std::string, std::atomic<bool>> services_;  // the keys never change
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<Listener>> listeners_ ABSL_GUARDED_BY(mutex_);
};

// grpc.health.v1 over a board.
class HealthService : public grpc::health::v1::Health::CallbackService {
 public:
  explicit HealthService(std::shared_ptr<HealthBoard> board) : board_(std::move(board)) {}

  grpc::ServerUnaryReactor* Check(grpc::CallbackServerContext* context,
                                  const grpc::health::v1::HealthCheckRequest* request,
                                  grpc::health::v1::HealthCheckResponse* response) override;
  grpc::ServerWriteReactor<grpc::health::v1::HealthCheckResponse>* Watch(
      grpc::CallbackServerContext* context,
      const grpc::health::v1::HealthCheckRequest* request) override;

 private:
  std::shared_ptr<HealthBoard> board_;
};

}  // namespace moment::rpc
