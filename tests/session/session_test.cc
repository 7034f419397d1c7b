// Sessions and their manager over a fake pipeline: exactly-once, ends and take-overs.
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/session/session_daemon.h"
#include "tests/support/catch.h"

namespace moment::session {
namespace {

v1::StepRequest StepOf(uint64_t sequence, char id, const std::string& follows) {
  v1::StepRequest request;
  request.set_sequence(sequence);
  request.set_step_id(Id(id));
  request.set_follows(follows);
  v1::Group* group = request.add_groups();
  group->mutable_hyperparameters()->set_lr(0.1);
  group->mutable_hyperparameters()->set_mode(v1::ADAM_MODE_ADAMW);
  group->mutable_tensors()->add_runs()->set_count(2);
  return request;
}

const v1::StepRequest kFirst = StepOf(1, 'a', Id('\0'));

absl::Status Run(Session& session, const v1::StepRequest& request) {
  const absl::StatusOr<std::shared_ptr<Operation>> step = session.Step(request);
  return step.ok() ? (*step)->Wait() : step.status();
}

TEST_CASE("Session: a step runs once, and its repetition is a replay that writes all parameters",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  REQUIRE(Run(*session, kFirst).ok());
  const auto again = session->Step(kFirst).value();
  REQUIRE(again->Wait().ok());
  REQUIRE(again->step().replayed());
  REQUIRE(again->step().statistics().chunks() == 1);
  REQUIRE(daemon.opener.disk->Count("step 1") == 1);
  REQUIRE(daemon.opener.disk->Count("materialize") == 1);
}

TEST_CASE("Session: the repetition of a running step joins it and hears of its buckets",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  daemon.opener.disk->Hold();
  const auto first = session->Step(kFirst).value();
  daemon.opener.disk->AwaitStep();
  const auto second = session->Step(kFirst).value();
  REQUIRE(second == first);
  const Operation::Progress progress = second->WaitBeyond(0);
  REQUIRE(progress.final_buckets == std::vector<uint32_t>{0});
  daemon.opener.disk->Release();
  REQUIRE(second->Wait().ok());
  REQUIRE(daemon.opener.disk->Count("step 1") == 1);
}

TEST_CASE("Session: a skip is replayed like a step", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::SkipRequest skip;
  skip.set_sequence(1);
  skip.set_step_id(Id('s'));
  skip.set_follows(Id('\0'));
  REQUIRE_FALSE(session->Skip(skip).value().replayed());
  const v1::SkipResponse again = session->Skip(skip).value();
  REQUIRE(again.replayed());
  REQUIRE(again.skipped());
  REQUIRE(daemon.opener.disk->Count("skip 1") == 1);
  REQUIRE(daemon.opener.disk->Count("materialize") == 1);
}

TEST_CASE("Session: after a failed step the same step runs again", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  {
    absl::MutexLock lock(&daemon.opener.disk->mutex);
    daemon.opener.disk->fail_next = true;
  }
  REQUIRE(Run(*session, kFirst).code() == absl::StatusCode::kDataLoss);
  REQUIRE(Run(*session, kFirst).ok());
  REQUIRE(daemon.opener.disk->Count("step 1") == 2);
}

TEST_CASE("Session: steps are refused before Attach, and before the first Refresh", "[session]") {
  Daemon daemon;
  const auto session = daemon.Open();
  REQUIRE(daemon.opened.empty());
  REQUIRE(Names(Run(*session, kFirst), "empty"));
  v1::RefreshRequest refresh;
  refresh.set_operation("fill");
  refresh.mutable_whole();
  REQUIRE(Names(session->Refresh(refresh).status(), "Attach"));
}

TEST_CASE("Session: a step with new tensors is refused until a Refresh of all of them",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  {
    absl::MutexLock lock(&daemon.opener.disk->mutex);
    daemon.opener.disk->added = {0, 1};
  }
  REQUIRE(Run(*session, kFirst).code() == absl::StatusCode::kFailedPrecondition);
  v1::RefreshRequest refresh;
  refresh.set_operation("part");
  refresh.mutable_tensors()->add_runs()->set_count(1);
  REQUIRE(Names(session->Refresh(refresh).status(), "weight1"));
  refresh.set_operation("all");
  refresh.mutable_tensors()->mutable_runs(0)->set_count(2);
  REQUIRE(session->Refresh(refresh).ok());
  REQUIRE(Run(*session, kFirst).ok());
}

TEST_CASE("Session: another t than the trainer expects is refused", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::StepRequest step = kFirst;
  v1::ExpectedSteps* expected = step.add_expected();
  expected->set_t(5);
  expected->mutable_tensors()->add_runs()->set_count(1);
  REQUIRE(Names(Run(*session, step), "the trainer expects 5"));
  REQUIRE(Run(*session, kFirst).ok());
}

TEST_CASE("Session: a blob above the limit of Open is refused before anything runs", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::StepRequest step = kFirst;
  step.set_blob(std::string(1025, 'b'));
  REQUIRE(Run(*session, step).code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(daemon.opener.disk->Count("step 1") == 0);
}

TEST_CASE("Session: an operation is joined by its id and refused under another kind", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::MaterializeRequest materialize;
  materialize.set_operation("m1");
  REQUIRE(session->Materialize(materialize).ok());
  REQUIRE(session->Materialize(materialize).ok());
  REQUIRE(daemon.opener.disk->Count("materialize") == 1);
  REQUIRE(session->GetOperation("m1").value().done());
  REQUIRE(session->GetOperation("m1").value().has_materialize());
  REQUIRE(session->GetOperation("unknown").status().code() == absl::StatusCode::kNotFound);
  v1::RollbackRequest rollback;
  rollback.set_operation("m1");
  REQUIRE(session->Rollback(rollback).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Session: Flush of another sequence than the applied one is refused naming both",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  REQUIRE(Run(*session, kFirst).ok());
  v1::FlushRequest flush;
  flush.set_sequence(2);
  REQUIRE(Names(session->Flush(flush).status(), "last applied one is 1"));
  flush.set_sequence(1);
  REQUIRE(session->Flush(flush).value().commit().sequence() == 1);
}

TEST_CASE("Session: a whole Refresh of existing state needs discard", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  v1::RefreshRequest refresh;
  refresh.set_operation("again");
  refresh.mutable_whole();
  REQUIRE(Names(session->Refresh(refresh).status(), "discard"));
  refresh.set_operation("over");
  refresh.mutable_whole()->set_discard(true);
  refresh.mutable_whole()->set_start_sequence(40);
  REQUIRE(session->Refresh(refresh).ok());
  REQUIRE(Run(*session, StepOf(41, 'z', Id('\0'))).ok());
}

TEST_CASE("Session: opened to start over, it refuses everything but a discarding Refresh",
          "[session]") {
  Daemon daemon;
  REQUIRE(daemon.OpenFilled()->Close().ok());
  v1::OpenRequest request = FakeOpenRequest();
  request.set_resume(v1::RESUME_NEVER);
  const auto session = daemon.Open(request);
  REQUIRE_FALSE(daemon.opened.empty());
  Daemon::Attach(*session);
  REQUIRE(Names(Run(*session, kFirst), "RESUME_NEVER"));
  v1::RefreshRequest refresh;
  refresh.set_operation("over");
  refresh.mutable_whole()->set_discard(true);
  REQUIRE(session->Refresh(refresh).ok());
  REQUIRE(Run(*session, kFirst).ok());
}

TEST_CASE("Session: a rollback moves where the next step follows", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  REQUIRE(Run(*session, kFirst).ok());
  v1::RollbackRequest rollback;
  rollback.set_operation("back");
  rollback.set_sequence(0);
  REQUIRE(session->Rollback(rollback).ok());
  REQUIRE(Run(*session, StepOf(1, 'b', Id('r'))).ok());
}

TEST_CASE("Session: Close commits the last applied step, and calls after it are refused",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  REQUIRE(Run(*session, kFirst).ok());
  REQUIRE(session->Close().value().commit().sequence() == 1);
  const absl::Status status = Run(*session, kFirst);
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Names(status, "closed"));
  daemon.AwaitEnd();
  REQUIRE(Names(daemon.sessions->Find(session->id()).status(), "closed"));
}

TEST_CASE("Session: a second Open is refused naming the holder, a takeover ends the first",
          "[session]") {
  Daemon daemon;
  const auto first = daemon.OpenFilled();
  REQUIRE(Run(*first, kFirst).ok());
  const absl::Status refused = daemon.sessions->Open(FakeOpenRequest(), Me()).status();
  REQUIRE(refused.code() == absl::StatusCode::kAlreadyExists);
  REQUIRE(Names(refused, absl::StrCat("process ", ::getpid())));
  v1::OpenRequest request = FakeOpenRequest();
  request.set_takeover(true);
  daemon.Open(request);
  REQUIRE(daemon.opened.last_applied().sequence() == 1);
  REQUIRE(Names(Run(*first, StepOf(2, 'b', Id('a'))), "took the store over"));
}

TEST_CASE("Session: stores of other jobs, roles and ranks are open side by side", "[session]") {
  Daemon daemon;
  daemon.Open(FakeOpenRequest("one"));
  daemon.Open(FakeOpenRequest("two"));
  REQUIRE(daemon.sessions->Sessions().size() == 2);
}

TEST_CASE("Session: a takeover during a step drops the step and closes the ring", "[session]") {
  Daemon daemon;
  const auto first = daemon.OpenFilled();
  daemon.opener.disk->Hold();
  const auto step = first->Step(kFirst).value();
  daemon.opener.disk->AwaitStep();
  v1::OpenRequest request = FakeOpenRequest();
  request.set_takeover(true);
  daemon.Open(request);
  REQUIRE_FALSE(step->Wait().ok());
  REQUIRE(*daemon.ring_closed);
  REQUIRE(daemon.opened.last_applied().sequence() == 0);
}

TEST_CASE("Session: the death of the trainer ends it and commits the last applied step",
          "[session]") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  Daemon daemon;
  Peer peer = Me();
  peer.pid = child;
  peer.pidfd =
      std::make_shared<base::UniqueFd>(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const auto session = daemon.Open(FakeOpenRequest(), peer);
  absl::Mutex mutex;
  std::string reason;
  REQUIRE(session
              ->AttachStream([&](const absl::Status& status) {
                absl::MutexLock lock(&mutex);
                reason = std::string(status.message());
              })
              .ok());
  ::kill(child, SIGKILL);
  {
    absl::MutexLock lock(&mutex);
    const auto told = [&reason] { return !reason.empty(); };
    mutex.Await(absl::Condition(&told));
    REQUIRE(reason == absl::StrCat("its process ", child, " has ended"));
  }
  ::waitpid(child, nullptr, 0);
  daemon.AwaitEnd();
  REQUIRE(daemon.opener.disk->Count("drain") >= 1);
}

TEST_CASE("Session: an Open finds the holder dead before the watch does", "[session]") {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(0);
  }
  Daemon daemon;
  Peer peer = Me();
  peer.pid = child;
  peer.pidfd =
      std::make_shared<base::UniqueFd>(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  // The watch may be faster: then this one is refused with the reason.
  daemon.sessions->Open(FakeOpenRequest(), peer).status().IgnoreError();
  ::waitpid(child, nullptr, 0);
  REQUIRE(daemon.sessions->Open(FakeOpenRequest(), Me()).ok());
}

TEST_CASE("Session: a lease that runs out ends it", "[session]") {
  Daemon daemon(std::chrono::milliseconds(200));
  const auto session = daemon.OpenFilled();
  absl::Mutex mutex;
  bool told = false;
  REQUIRE(session
              ->AttachStream([&](const absl::Status&) {
                absl::MutexLock lock(&mutex);
                told = true;
              })
              .ok());
  absl::MutexLock lock(&mutex);
  mutex.Await(absl::Condition(&told));
  REQUIRE(Names(session->Renew(), "silent"));
}

TEST_CASE("Session: a second stream is refused", "[session]") {
  Daemon daemon;
  const auto session = daemon.Open();
  REQUIRE(session->AttachStream([](const absl::Status&) {}).ok());
  REQUIRE(session->AttachStream([](const absl::Status&) {}).code() ==
          absl::StatusCode::kAlreadyExists);
}

TEST_CASE("Session: the daemon's stop lets the running step finish and commits it", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  daemon.opener.disk->Hold();
  const auto step = session->Step(kFirst).value();
  daemon.opener.disk->AwaitStep();
  absl::Status stopped = absl::UnknownError("did not run");
  std::thread stop([&] {
    stopped =
        daemon.sessions->Stop(Clock::now() + std::chrono::seconds(60), std::chrono::seconds(60));
  });
  daemon.opener.disk->Release();
  REQUIRE(step->Wait().ok());
  stop.join();
  REQUIRE(stopped.ok());
  REQUIRE(Run(*session, StepOf(2, 'b', Id('a'))).code() == absl::StatusCode::kUnavailable);
  absl::MutexLock lock(&daemon.opener.disk->mutex);
  REQUIRE(daemon.opener.disk->committed == 1);
}

TEST_CASE("Session: the daemon's stop drops a step that outlasts the drain time", "[session]") {
  Daemon daemon;
  const auto session = daemon.OpenFilled();
  daemon.opener.disk->Hold();
  const auto step = session->Step(kFirst).value();
  daemon.opener.disk->AwaitStep();
  REQUIRE(daemon.sessions->Stop(Clock::now(), std::chrono::seconds(60)).ok());
  REQUIRE(step->Wait().code() == absl::StatusCode::kUnavailable);
  REQUIRE(daemon.sessions->Open(FakeOpenRequest(), Me()).status().code() ==
          absl::StatusCode::kUnavailable);
  absl::MutexLock lock(&daemon.opener.disk->mutex);
  REQUIRE(daemon.opener.disk->committed == 0);
}

TEST_CASE("Session: bad Opens are refused naming what is wrong", "[session]") {
  Daemon daemon;
  const auto refusal = [&](void (*edit)(v1::OpenRequest&)) {
    v1::OpenRequest request = FakeOpenRequest();
    edit(request);
    return daemon.sessions->Open(request, Me()).status();
  };
  REQUIRE(Names(refusal([](v1::OpenRequest& r) { r.mutable_name()->clear_job(); }), "job"));
  REQUIRE(
      Names(refusal([](v1::OpenRequest& r) { r.mutable_name()->set_role(std::string(1025, 'r')); }),
            "role"));
  REQUIRE(Names(refusal([](v1::OpenRequest& r) { r.mutable_name()->set_rank(100000); }), "rank"));
  REQUIRE(Names(refusal([](v1::OpenRequest& r) { r.clear_members(); }), "member"));
  REQUIRE(Names(refusal([](v1::OpenRequest& r) { r.add_tensors()->set_member(7); }), "member 7"));
  REQUIRE(Names(refusal([](v1::OpenRequest& r) { r.set_blob_limit_bytes(17 << 20); }), "blob"));
}

TEST_CASE("Session: an Attach whose generation does not grow, or of GPU memory, is refused",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.Open();
  Daemon::Attach(*session);
  v1::AttachRequest attach;
  attach.set_generation(1);
  REQUIRE(session->Attach(attach).status().code() == absl::StatusCode::kFailedPrecondition);
  attach.set_generation(2);
  attach.add_regions()->mutable_cuda_ipc();
  REQUIRE(session->Attach(attach).status().code() == absl::StatusCode::kUnimplemented);
}

TEST_CASE("Session: an Attach with a buffer beyond its region is refused naming the tensor",
          "[session]") {
  Daemon daemon;
  const auto session = daemon.Open();
  v1::AttachRequest attach;
  attach.set_generation(1);
  v1::Region* region = attach.add_regions();
  region->set_region(3);
  region->set_length_bytes(40);
  region->mutable_ring();
  v1::TensorLocation* location = attach.add_parameters();
  location->set_tensor(1);
  location->set_region(3);
  location->set_offset_bytes(8);
  REQUIRE(session->Attach(attach).ok());
  location->set_offset_bytes(9);
  attach.set_generation(2);
  REQUIRE(Names(session->Attach(attach).status(), "tensor 1 (weight1) needs 32 bytes"));
  location->set_offset_bytes(UINT64_MAX);
  REQUIRE(Names(session->Attach(attach).status(), "tensor 1"));
}

}  // namespace
}  // namespace moment::session
