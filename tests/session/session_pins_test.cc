// Pins of a session over a fake pipeline: joining, giving up, dropping, ends.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "daemon/session/session_manager.h"
#include "tests/session/fake_pipeline.h"
#include "tests/support/catch.h"

namespace moment::session {
namespace {

struct PinDaemon {
  PinDaemon() {
    spdlog::set_level(spdlog::level::off);
    ManagerOptions options;
    options.make_ring = MakeFakeRing(std::make_shared<std::atomic<bool>>(false));
    sessions = std::make_unique<SessionManager>(options, opener, *peers);
    v1::OpenRequest request = FakeOpenRequest();
    request.mutable_client()->set_program("train.py");
    Peer peer;
    peer.pid = ::getpid();
    peer.uid = ::getuid();
    session = sessions->Find(sessions->Open(request, peer).value().session()).value();
  }

  void Fill() {
    v1::AttachRequest attach;
    attach.set_generation(1);
    REQUIRE(session->Attach(attach).ok());
    v1::RefreshRequest refresh;
    refresh.set_operation("fill");
    refresh.mutable_whole()->set_start_sequence(5);
    REQUIRE(session->Refresh(refresh).ok());
  }
  absl::StatusOr<v1::PinResponse> Pin(const std::string& operation) {
    v1::PinRequest request;
    request.set_operation(operation);
    return session->Pin(request);
  }
  absl::Status Unpin(const std::string& pin) {
    v1::UnpinRequest request;
    request.set_pin(pin);
    return session->Unpin(request);
  }
  bool Has(const std::string& pin) { return session->PinDescriptors(pin, 0, 64).ok(); }

  FakeOpener opener;
  std::unique_ptr<PeerWatch> peers = PeerWatch::Create().value();
  std::unique_ptr<SessionManager> sessions;
  std::shared_ptr<Session> session;
};

TEST_CASE("Session pins: the answer tells commit, t, and where every slice lies", "[session]") {
  PinDaemon daemon;
  daemon.Fill();
  const auto pin = daemon.Pin("one");
  REQUIRE(pin.ok());
  CHECK(pin->pin() == "one");
  CHECK(pin->commit().sequence() == 5);
  CHECK(pin->size_bytes() == 100);
  REQUIRE(pin->steps_size() == 2);
  CHECK(pin->steps(0).t() == 5);
  CHECK(pin->steps(1).first() == 1);
  CHECK(pin->steps(1).t() == 0);
  REQUIRE(pin->buckets_size() == 1);
  REQUIRE(pin->buckets(0).segments_size() == 3);
  CHECK(pin->buckets(0).segments(0).type() == v1::DATA_TYPE_FLOAT32);
  CHECK(pin->buckets(0).segments(0).offset_bytes() ==
        daemon.opener.layout->buckets()[0].segments[0].offset);
  REQUIRE(pin->buckets(0).slices_size() == 2);
  CHECK(pin->buckets(0).slices(1).element_count() == 8);
  CHECK(daemon.session->GetOperation("one")->pin().commit().sequence() == 5);
}

TEST_CASE("Session pins: the same operation again is joined", "[session]") {
  PinDaemon daemon;
  daemon.Fill();
  REQUIRE(daemon.Pin("one").ok());
  REQUIRE(daemon.Pin("one").ok());
  CHECK(daemon.opener.disk->Count("pin") == 1);
  CHECK(absl::IsInvalidArgument(daemon.Pin("fill").status()));
  CHECK(absl::IsInvalidArgument(daemon.Pin("a/b").status()));
}

TEST_CASE("Session pins: an empty store is refused", "[session]") {
  PinDaemon daemon;
  CHECK(absl::IsFailedPrecondition(daemon.Pin("one").status()));
  CHECK(daemon.opener.disk->Count("pin") == 0);
}

TEST_CASE("Session pins: a pin that is gone is released all the same", "[session]") {
  PinDaemon daemon;
  daemon.Fill();
  REQUIRE(daemon.Pin("one").ok());
  CHECK(daemon.Unpin("one").ok());
  CHECK(!daemon.Has("one"));
  CHECK(daemon.Unpin("one").ok());
  CHECK(daemon.Unpin("never was").ok());
  CHECK(absl::IsNotFound(daemon.Pin("one").status()));  // joined, and dropped
}

TEST_CASE("Session pins: releasing waits for no running call", "[session]") {
  PinDaemon daemon;
  daemon.Fill();
  REQUIRE(daemon.Pin("one").ok());
  daemon.opener.disk->Hold();
  std::thread running([&] { CHECK(daemon.Pin("two").ok()); });
  daemon.opener.disk->AwaitStep();
  CHECK(daemon.Unpin("one").ok());
  CHECK(!daemon.Has("one"));
  daemon.opener.disk->Release();
  running.join();
  CHECK(daemon.Has("two"));
}

TEST_CASE("Session pins: one that is given up while it is made is dropped", "[session]") {
  PinDaemon daemon;
  daemon.Fill();
  daemon.opener.disk->Hold();
  absl::Status made;
  std::thread running([&] { made = daemon.Pin("one").status(); });
  daemon.opener.disk->AwaitStep();
  CHECK(daemon.Unpin("one").ok());
  daemon.opener.disk->Release();
  running.join();
  CHECK(absl::IsCancelled(made));
  CHECK(!daemon.Has("one"));
}

TEST_CASE("Session pins: an operator drops one, or hears that there is none", "[session]") {
  PinDaemon daemon;
  daemon.Fill();
  REQUIRE(daemon.Pin("one").ok());
  const auto freed = daemon.session->DropPin("one");
  REQUIRE(freed.ok());
  CHECK(*freed == 100);
  CHECK(absl::IsNotFound(daemon.session->DropPin("one").status()));
}

TEST_CASE("Session pins: they are told with their owner", "[session]") {
  PinDaemon daemon;
  daemon.Fill();
  REQUIRE(daemon.Pin("one").ok());
  const v1::SessionStatus status = daemon.session->Status();
  REQUIRE(status.pins_size() == 1);
  CHECK(status.pins(0).id() == "one");
  CHECK(status.pins(0).owner().pid() == static_cast<uint32_t>(::getpid()));
  CHECK(status.pins(0).owner().program() == "train.py");
  CHECK(status.pins(0).owner().session() == daemon.session->id());
  CHECK(status.pins(0).sequence() == 5);
  CHECK(status.pins(0).size_bytes() == 100);
  CHECK(status.pins(0).held_bytes() == 100);
}

TEST_CASE("Session pins: they end with the session", "[session]") {
  PinDaemon daemon;
  daemon.Fill();
  REQUIRE(daemon.Pin("one").ok());
  REQUIRE(daemon.session->Close().ok());
  CHECK(absl::IsFailedPrecondition(daemon.session->PinDescriptors("one", 0, 1).status()));
  CHECK(absl::IsFailedPrecondition(daemon.Pin("two").status()));
  CHECK(absl::IsFailedPrecondition(daemon.Unpin("one")));
  CHECK(absl::IsFailedPrecondition(daemon.session->DropPin("one").status()));
}

}  // namespace
}  // namespace moment::session
