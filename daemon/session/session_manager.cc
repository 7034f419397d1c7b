#include "daemon/session/session_manager.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"
#include "daemon/session/ids.h"
#include "daemon/session/open_request.h"

namespace moment::session {
namespace {

constexpr size_t kRememberedEnds = 256;
constexpr size_t kSessionIdBytes = 8;

}  // namespace

SessionManager::SessionManager(ManagerOptions options, StoreOpener& opener, PeerWatch& peers)
    : options_(std::move(options)), opener_(opener), peers_(peers), keeper_([this] { Keep(); }) {}

SessionManager::~SessionManager() {
  for (const std::shared_ptr<Session>& session : Sessions()) {
    session->End(absl::UnavailableError("the daemon is stopping"));
  }
  {
    absl::MutexLock lock(&mutex_);
    const auto empty = [this] {
      mutex_.AssertReaderHeld();
      return holders_.empty();
    };
    mutex_.Await(absl::Condition(&empty));
    destroying_ = true;
  }
  keeper_.join();
}

absl::StatusOr<v1::OpenResponse> SessionManager::Open(const v1::OpenRequest& request,
                                                      const Peer& peer) {
  MOMENT_RETURN_IF_ERROR(CheckOpenRequest(request));
  MOMENT_RETURN_IF_ERROR(Claim(request, peer));
  absl::StatusOr<v1::OpenResponse> response = OpenClaimed(request, peer);
  if (!response.ok()) {
    spdlog::warn("event=open_refused job={} role={} rank={} pid={} error={}",
                 base::Quoted(request.name().job()), base::Quoted(request.name().role()),
                 request.name().rank(), peer.pid, base::Quoted(response.status().message()));
  }
  return response;
}

absl::Status SessionManager::Claim(const v1::OpenRequest& request, const Peer& peer) {
  const std::string key = StoreKey(request.name());
  const absl::Time give_up = absl::Now() + absl::FromChrono(options_.handover);
  for (;;) {
    std::shared_ptr<Session> previous;
    {
      absl::MutexLock lock(&mutex_);
      if (stopping_) {
        return absl::UnavailableError("the daemon is stopping: try again when it is back");
      }
      const auto [holder, claimed] = holders_.try_emplace(key, Holder{nullptr, peer.pid});
      if (claimed) {
        return absl::OkStatus();
      }
      previous = holder->second.session;
      const bool over = previous != nullptr && (previous->ended() || previous->PeerHasEnded());
      if (!over && !request.takeover()) {
        return absl::AlreadyExistsError(absl::StrCat(
            DescribeName(request.name()), " is ", previous == nullptr ? "being opened" : "held",
            " by process ", holder->second.pid, ": end it, or open with takeover"));
      }
    }
    if (previous != nullptr) {
      previous->End(absl::FailedPreconditionError(
          absl::StrCat("process ", peer.pid, " took the store over")));
    }
    absl::MutexLock lock(&mutex_);
    const auto changed = [&] {
      mutex_.AssertReaderHeld();
      const auto holder = holders_.find(key);
      return stopping_ || holder == holders_.end() || holder->second.session != previous;
    };
    if (!mutex_.AwaitWithDeadline(absl::Condition(&changed), give_up)) {
      return absl::UnavailableError(absl::StrCat(
          DescribeName(request.name()), ": the session before is still committing: try again"));
    }
  }
}

void SessionManager::Release(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  holders_.erase(key);
}

absl::StatusOr<v1::OpenResponse> SessionManager::OpenClaimed(const v1::OpenRequest& request,
                                                             const Peer& peer) {
  const std::string key = StoreKey(request.name());
  absl::StatusOr<OpenedStore> opening = opener_.Open(request, peer.uid);
  if (!opening.ok()) {
    Release(key);
    return opening.status();
  }
  OpenedStore opened = *std::move(opening);
  SessionOptions options;
  options.id = absl::BytesToHexString(RandomBytes(kSessionIdBytes));
  options.token = RandomBytes(kTokenBytes);
  options.name = request.name();
  options.device = opened.device;
  options.importer = opened.importer;
  options.program = request.client().program();
  options.peer = peer;
  options.lease = options_.lease;
  options.blob_limit_bytes = request.blob_limit_bytes();
  options.must_discard =
      request.resume() == v1::RESUME_NEVER && opened.pipeline->applied().has_value();
  options.make_ring = options_.make_ring;
  options.peers = &peers_;
  options.gone = [this, id = options.id, key](const absl::Status& committed) {
    Bury(id, key, committed);
  };
  const std::shared_ptr<Session> session =
      Session::Create(std::move(options), std::move(opened.pipeline));
  v1::OpenResponse response;
  session->Describe(response);
  response.set_commit_every(request.has_commit_every() ? request.commit_every() : 1);
  response.set_profile(opened.profile);
  response.set_io_engine(opened.io_engine);
  response.mutable_warnings()->Assign(opened.warnings.begin(), opened.warnings.end());
  spdlog::info("event=session_open session={} job={} role={} rank={} pid={} uid={} sequence={}",
               session->id(), base::Quoted(request.name().job()),
               base::Quoted(request.name().role()), request.name().rank(), peer.pid, peer.uid,
               response.last_applied().sequence());
  absl::MutexLock lock(&mutex_);
  // A session whose process has died meanwhile is buried without being found; its place may even
  // be another's by this time.
  MOMENT_RETURN_IF_ERROR(session->EndReason());
  holders_[key].session = session;
  return response;
}

absl::StatusOr<std::shared_ptr<Session>> SessionManager::Find(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, holder] : holders_) {
    if (holder.session != nullptr && holder.session->id() == id) {
      return holder.session;
    }
  }
  for (const auto& [ended, reason] : reasons_) {
    if (ended == id) {
      return reason;
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat("there is no session ", id, " in this daemon: open the store again"));
}

absl::StatusOr<std::shared_ptr<Session>> SessionManager::FindByToken(
    absl::string_view token) const {
  std::shared_ptr<Session> found;
  for (const std::shared_ptr<Session>& session : Sessions()) {
    if (EqualInConstantTime(session->token(), token)) {
      found = session;
    }
  }
  if (found == nullptr) {
    return absl::PermissionDeniedError("the token is of no live session");
  }
  return found;
}

std::shared_ptr<Session> SessionManager::FindByName(const v1::StoreName& name) const {
  absl::MutexLock lock(&mutex_);
  const auto holder = holders_.find(StoreKey(name));
  return holder == holders_.end() ? nullptr : holder->second.session;
}

std::vector<std::shared_ptr<Session>> SessionManager::Sessions() const {
  std::vector<std::shared_ptr<Session>> sessions;
  absl::MutexLock lock(&mutex_);
  for (const auto& [key, holder] : holders_) {
    if (holder.session != nullptr) {
      sessions.push_back(holder.session);
    }
  }
  return sessions;
}

// On the executor of the session that is over: the keeper destroys it.
void SessionManager::Bury(const std::string& id, const std::string& key,
                          const absl::Status& committed) {
  if (!committed.ok()) {
    spdlog::error("event=session_commit session={} error={}", id,
                  base::Quoted(committed.message()));
  }
  absl::MutexLock lock(&mutex_);
  const auto holder = holders_.find(key);
  if (holder == holders_.end()) {
    return;
  }
  if (holder->second.session != nullptr) {
    reasons_.emplace_back(id, holder->second.session->EndReason());
    graveyard_.push_back(std::move(holder->second.session));
  }
  if (reasons_.size() > kRememberedEnds) {
    reasons_.pop_front();
  }
  holders_.erase(holder);
}

void SessionManager::Keep() {
  for (;;) {
    std::vector<std::shared_ptr<Session>> over;
    {
      absl::MutexLock lock(&mutex_);
      const auto due = [this] {
        mutex_.AssertReaderHeld();
        return destroying_ || !graveyard_.empty();
      };
      mutex_.AwaitWithTimeout(absl::Condition(&due), absl::FromChrono(options_.lease) / 8);
      over = std::exchange(graveyard_, {});
      if (over.empty() && destroying_) {
        return;
      }
    }
    over.clear();  // outside the lock: it joins their threads
    EndExpired();
  }
}

void SessionManager::EndExpired() {
  for (const std::shared_ptr<Session>& session : Sessions()) {
    if (session->LeaseExpired(Clock::now())) {
      session->End(absl::FailedPreconditionError(
          absl::StrCat("it was silent for longer than its lease of ",
                       absl::FormatDuration(absl::FromChrono(options_.lease)))));
    }
  }
}

absl::Status SessionManager::Stop(Clock::time_point deadline,
                                  std::chrono::milliseconds commit_timeout) {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  const std::vector<std::shared_ptr<Session>> sessions = Sessions();
  for (const std::shared_ptr<Session>& session : sessions) {
    session->Quiesce();
  }
  for (const std::shared_ptr<Session>& session : sessions) {
    session->AwaitIdle(deadline);
  }
  for (const std::shared_ptr<Session>& session : sessions) {
    session->End(absl::UnavailableError("the daemon is stopping"));
  }
  absl::MutexLock lock(&mutex_);
  const auto empty = [this] {
    mutex_.AssertReaderHeld();
    return holders_.empty();
  };
  if (!mutex_.AwaitWithTimeout(absl::Condition(&empty), absl::FromChrono(commit_timeout))) {
    return absl::DeadlineExceededError(
        absl::StrCat(holders_.size(), " stores were not committed within ",
                     absl::FormatDuration(absl::FromChrono(commit_timeout))));
  }
  return absl::OkStatus();
}

}  // namespace moment::session
