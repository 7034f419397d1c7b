#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "daemon/session/session.h"
#include "daemon/session/store_opener.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

struct ManagerOptions {
  std::chrono::milliseconds lease{30000};
  // How long an Open waits for the end of the session before it, which commits.
  std::chrono::milliseconds handover{60000};
  MakeRing make_ring;
};

// All sessions: at most one live one per store. Thread-safe; its own thread ends sessions whose
// lease ran out and buries those that are over.
class SessionManager {
 public:
  // The opener and the watch outlive the manager.
  SessionManager(ManagerOptions options, StoreOpener& opener, PeerWatch& peers);
  ~SessionManager();  // ends what is left

  // ALREADY_EXISTS naming the holder if the store has a live session and `takeover` is not set.
  absl::StatusOr<v1::OpenResponse> Open(const v1::OpenRequest& request, const Peer& peer);

  // FAILED_PRECONDITION with the reason of its end, or if it never was.
  absl::StatusOr<std::shared_ptr<Session>> Find(const std::string& id) const;
  absl::StatusOr<std::shared_ptr<Session>> FindByToken(absl::string_view token) const;
  // nullptr if the store has no live session.
  std::shared_ptr<Session> FindByName(const v1::StoreName& name) const;
  std::vector<std::shared_ptr<Session>> Sessions() const;

  // Refuses new calls, waits for running ones until `deadline`, ends all sessions and waits until
  // they are committed, at most for `commit_timeout`. DEADLINE_EXCEEDED naming what is left.
  absl::Status Stop(Clock::time_point deadline, std::chrono::milliseconds commit_timeout);

 private:
  // Who has a store: an Open under way (no session yet), or a session until it is over.
  struct Holder {
    std::shared_ptr<Session> session;
    pid_t pid = 0;
  };

  absl::Status Claim(const v1::OpenRequest& request, const Peer& peer);
  absl::StatusOr<v1::OpenResponse> OpenClaimed(const v1::OpenRequest& request, const Peer& peer);
  void Release(const std::string& key);
  void Bury(const std::string& id, const std::string& key, const absl::Status& committed);
  void Keep();
  void EndExpired();

  const ManagerOptions options_;
  StoreOpener& opener_;
  PeerWatch& peers_;

  mutable absl::Mutex mutex_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool destroying_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<std::string, Holder> holders_ ABSL_GUARDED_BY(mutex_);  // by StoreKey
  std::vector<std::shared_ptr<Session>> graveyard_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<std::string, absl::Status>> reasons_
      ABSL_GUARDED_BY(mutex_);  // of ended sessions by id, oldest first
  std::thread keeper_;
};

}  // namespace moment::session
