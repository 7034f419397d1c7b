// A trainer that dies with GPU memory shared: the memory is let go once nothing works on it, before
// anything waits for a disk.
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "tests/session/session_daemon.h"
#include "tests/support/catch.h"

namespace moment::session {
namespace {

constexpr char kGpu[] = "GPU-1";

// Its opening and closing stand among the pipeline's calls.
class NotingImporter : public device::MemoryImporter {
 public:
  explicit NotingImporter(std::shared_ptr<FakeDisk> disk) : disk_(std::move(disk)) {}

  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> OpenHandle(absl::string_view) override {
    return std::make_unique<Memory>(disk_);
  }
  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> MapDescriptors(
      const std::vector<base::UniqueFd>&, uint64_t) override {
    return std::make_unique<Memory>(disk_);
  }

 private:
  class Memory : public device::ImportedMemory {
   public:
    explicit Memory(std::shared_ptr<FakeDisk> disk) : disk_(std::move(disk)), bytes_(4096) {
      Note("open memory");
    }
    ~Memory() override { Note("close memory"); }
    std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
    uint64_t length_bytes() const override { return bytes_.size(); }

   private:
    void Note(const std::string& call) {
      absl::MutexLock lock(&disk_->mutex);
      disk_->calls.push_back(call);
    }
    const std::shared_ptr<FakeDisk> disk_;
    const std::vector<std::byte> bytes_;
  };

  const std::shared_ptr<FakeDisk> disk_;
};

// A process that waits to be killed.
class Victim {
 public:
  Victim() : pid_(::fork()) {
    if (pid_ == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  ~Victim() { Kill(); }

  Peer AsPeer() const {
    Peer peer = Me();
    peer.pid = pid_;
    peer.pidfd =
        std::make_shared<base::UniqueFd>(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    return peer;
  }
  void Kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(std::exchange(pid_, -1), nullptr, 0);
    }
  }

 private:
  pid_t pid_;
};

std::shared_ptr<Session> OpenWithMemory(Daemon& daemon, const Peer& peer) {
  std::shared_ptr<Session> session = daemon.Open(FakeOpenRequest(), peer);
  v1::AttachRequest attach;
  attach.set_generation(1);
  v1::Region& region = *attach.add_regions();
  region.set_region(1);
  region.set_length_bytes(4096);
  region.mutable_cuda_ipc()->set_handle("handle");
  region.mutable_cuda_ipc()->set_device_uuid(kGpu);
  REQUIRE(session->Attach(attach).ok());
  v1::RefreshRequest refresh;
  refresh.set_operation("fill");
  refresh.mutable_whole();
  REQUIRE(session->Refresh(refresh).ok());
  return session;
}

v1::StepRequest FirstStep() {
  v1::StepRequest request;
  request.set_sequence(1);
  request.set_step_id(Id('a'));
  request.set_follows(Id('\0'));
  v1::Group* group = request.add_groups();
  group->mutable_hyperparameters()->set_lr(0.1);
  group->mutable_hyperparameters()->set_mode(v1::ADAM_MODE_ADAMW);
  group->mutable_tensors()->add_runs()->set_count(2);
  return request;
}

TEST_CASE("Session: the death of the trainer within a step closes its GPU memory, then commits",
          "[session]") {
  Victim victim;
  Daemon daemon;
  NotingImporter importer(daemon.opener.disk);
  daemon.opener.device = kGpu;
  daemon.opener.importer = &importer;
  FakeDisk& disk = *daemon.opener.disk;
  const auto session = OpenWithMemory(daemon, victim.AsPeer());
  REQUIRE(disk.Count("open memory") == 1);
  disk.Hold();
  const auto step = session->Step(FirstStep()).value();
  disk.AwaitStep();
  CHECK(disk.Count("close memory") == 0);
  victim.Kill();
  CHECK_FALSE(step->Wait().ok());
  daemon.AwaitEnd();
  absl::MutexLock lock(&disk.mutex);
  const auto at = [&](const std::string& call) {
    disk.mutex.AssertHeld();
    return std::find(disk.calls.begin(), disk.calls.end(), call) - disk.calls.begin();
  };
  CHECK(at("step 1") < at("detach"));
  CHECK(at("detach") < at("close memory"));
  CHECK(at("close memory") < at("drain"));
  CHECK(static_cast<size_t>(at("drain")) < disk.calls.size());
}

}  // namespace
}  // namespace moment::session
