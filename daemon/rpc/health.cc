#include "daemon/rpc/health.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moment::rpc {
namespace {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

HealthCheckResponse::ServingStatus StatusOf(const HealthBoard& board, const std::string& service) {
  const absl::optional<bool> serving = board.Get(service);
  if (!serving.has_value()) {
    return HealthCheckResponse::SERVICE_UNKNOWN;
  }
  return *serving ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

// Sends the status whenever it differs from the one sent last. Owns itself until OnDone. Its
// methods run on gRPC's threads, Changed on that of whoever sets the board.
class Watcher : public grpc::ServerWriteReactor<HealthCheckResponse> {
 public:
  static Watcher* Start(std::shared_ptr<HealthBoard> board, std::string service) {
    auto watcher = std::shared_ptr<Watcher>(new Watcher(std::move(board), std::move(service)));
    watcher->self_ = watcher;
    watcher->subscription_ = watcher->board_->Subscribe([weak = std::weak_ptr<Watcher>(watcher)] {
      if (const std::shared_ptr<Watcher> alive = weak.lock()) {
        alive->Send();
      }
    });
    watcher->Send();
    return watcher.get();
  }

  void OnWriteDone(bool ok) override {
    {
      absl::MutexLock lock(&mutex_);
      writing_ = false;
    }
    if (ok) {
      Send();
    }
  }

  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    if (!std::exchange(finished_, true)) {
      Finish(grpc::Status::CANCELLED);
    }
  }

  void OnDone() override { const std::shared_ptr<Watcher> last = std::move(self_); }

 private:
  Watcher(std::shared_ptr<HealthBoard> board, std::string service)
      : board_(std::move(board)), service_(std::move(service)) {}

  void Send() {
    absl::MutexLock lock(&mutex_);
    const HealthCheckResponse::ServingStatus status = StatusOf(*board_, service_);
    if (writing_ || finished_ || status == response_.status()) {
      return;
    }
    writing_ = true;
    response_.set_status(status);
    StartWrite(&response_);
  }

  const std::shared_ptr<HealthBoard> board_;
  const std::string service_;
  std::shared_ptr<Watcher> self_;
  std::shared_ptr<HealthBoard::Listener> subscription_;
  absl::Mutex mutex_;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  HealthCheckResponse response_ ABSL_GUARDED_BY(mutex_);  // UNKNOWN until the first is sent
};

}  // namespace

HealthBoard::HealthBoard(const std::vector<std::string>& services) {
  for (const std::string& service : services) {
    services_[service] = false;
  }
}

void HealthBoard::Set(const std::string& service, bool serving) {
  const auto found = services_.find(service);
  if (found == services_.end() || found->second.exchange(serving) == serving) {
    return;
  }
  std::vector<std::shared_ptr<Listener>> alive;
  {
    absl::MutexLock lock(&mutex_);
    for (const std::weak_ptr<Listener>& listener : listeners_) {
      alive.push_back(listener.lock());
    }
  }
  for (const std::shared_ptr<Listener>& listener : alive) {
    if (listener != nullptr) {
      (*listener)();
    }
  }
}

absl::optional<bool> HealthBoard::Get(const std::string& service) const {
  const auto found = services_.find(service);
  return found == services_.end() ? absl::nullopt : absl::make_optional(found->second.load());
}

std::shared_ptr<HealthBoard::Listener> HealthBoard::Subscribe(Listener listener) {
  auto handle = std::make_shared<Listener>(std::move(listener));
  absl::MutexLock lock(&mutex_);
  listeners_.erase(std::remove_if(listeners_.begin(), listeners_.end(),
                                  [](const std::weak_ptr<Listener>& old) { return old.expired(); }),
                   listeners_.end());
  listeners_.push_back(handle);
  return handle;
}

grpc::ServerUnaryReactor* HealthService::Check(grpc::CallbackServerContext* context,
                                               const HealthCheckRequest* request,
                                               HealthCheckResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  response->set_status(StatusOf(*board_, request->service()));
  if (response->status() == HealthCheckResponse::SERVICE_UNKNOWN) {
    reactor->Finish(grpc::Status(
        grpc::StatusCode::NOT_FOUND,
        absl::StrCat("no health service \"", request->service(),
                     "\": there are \"\", liveness, readiness and the state directories")));
  } else {
    reactor->Finish(grpc::Status::OK);
  }
  return reactor;
}

grpc::ServerWriteReactor<HealthCheckResponse>* HealthService::Watch(
    grpc::CallbackServerContext*, const HealthCheckRequest* request) {
  return Watcher::Start(board_, request->service());
}

}  // namespace moment::rpc
