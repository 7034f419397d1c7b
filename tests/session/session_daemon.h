#pragma once

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "daemon/session/session_manager.h"
#include "tests/session/fake_pipeline.h"
#include "tests/support/catch.h"

namespace moment::session {

inline std::string Id(char c) { return std::string(16, c); }

inline bool Names(const absl::Status& status, const std::string& text) {
  return status.message().find(text) != absl::string_view::npos;
}

inline Peer Me() {
  Peer peer;
  peer.pid = ::getpid();
  peer.uid = ::getuid();
  return peer;
}

// Sessions over one fake disk.
struct Daemon {
  explicit Daemon(std::chrono::milliseconds lease = std::chrono::seconds(60)) {
    spdlog::set_level(spdlog::level::off);
    ManagerOptions options;
    options.lease = lease;
    options.make_ring = MakeFakeRing(ring_closed);
    sessions = std::make_unique<SessionManager>(options, opener, *peers);
  }

  std::shared_ptr<Session> Open(v1::OpenRequest request = FakeOpenRequest(), Peer peer = Me()) {
    opened = sessions->Open(request, peer).value();
    return sessions->Find(opened.session()).value();
  }

  // Attached and filled: the first step is 1.
  std::shared_ptr<Session> OpenFilled() {
    std::shared_ptr<Session> session = Open();
    Attach(*session);
    v1::RefreshRequest refresh;
    refresh.set_operation("fill");
    refresh.mutable_whole();
    REQUIRE(session->Refresh(refresh).ok());
    return session;
  }

  static void Attach(Session& session) {
    v1::AttachRequest request;
    request.set_generation(1);
    REQUIRE(session.Attach(request).ok());
  }

  // Until the store is free again.
  void AwaitEnd(const std::string& job = "job") {
    v1::OpenRequest request = FakeOpenRequest(job);
    request.set_takeover(true);
    REQUIRE(sessions->Open(request, Me()).ok());
  }

  FakeOpener opener;
  std::shared_ptr<std::atomic<bool>> ring_closed = std::make_shared<std::atomic<bool>>(false);
  std::unique_ptr<PeerWatch> peers = PeerWatch::Create().value();
  std::unique_ptr<SessionManager> sessions;
  v1::OpenResponse opened;
};

}  // namespace moment::session
