#include "daemon/health_watch.h"

#include <spdlog/spdlog.h>

#include <cstddef>

#include "daemon/base/memory.h"
#include "daemon/io/simulated_disk.h"
#include "tests/support/catch.h"

namespace moment {
namespace {

// One state directory on a simulated disk, watched.
struct Watched {
  explicit Watched(uint64_t capacity_bytes = UINT64_MAX)
      : disk({.capacity_bytes = capacity_bytes}) {
    spdlog::set_level(spdlog::level::off);
    REQUIRE(disk.files().CreateDirectory("/data", 0750).ok());
    session::StateDirectory directory;
    directory.path = "/data";
    directory.engine = &disk.engine();
    directories.push_back(directory);
    health.push_back(std::make_unique<service::DirectoryHealth>());
    io::OpenOptions options;
    options.mode = io::OpenMode::kCreate;
    file = disk.files().Open("/data/file", options).value();
    subscription = board->Subscribe([this] {
      absl::MutexLock lock(&mutex);
      ++changes;
    });
  }

  void Start(std::chrono::milliseconds stall_after) {
    watch = std::make_unique<HealthWatch>(directories, health, disk.files(), *board, stall_after);
  }

  void Await(const std::string& service, bool serving) {
    absl::MutexLock lock(&mutex);
    const auto reached = [&] { return board->Get(service) == serving; };
    mutex.Await(absl::Condition(&reached));
  }

  io::SimulatedDisk disk;
  std::unique_ptr<io::File> file;
  std::vector<session::StateDirectory> directories;
  std::vector<std::unique_ptr<service::DirectoryHealth>> health;
  std::shared_ptr<rpc::HealthBoard> board = std::make_shared<rpc::HealthBoard>(
      std::vector<std::string>{"", "liveness", "readiness", "/data"});
  absl::Mutex mutex;
  int changes = 0;
  std::shared_ptr<rpc::HealthBoard::Listener> subscription;
  std::unique_ptr<HealthWatch> watch;
};

TEST_CASE("Health watch: a stalled device turns its directory and readiness, and back", "[app]") {
  Watched watched;
  watched.Start(std::chrono::milliseconds(20));
  REQUIRE(watched.board->Get("/data") == true);
  watched.disk.Hold();
  base::AlignedBuffer buffer = base::AlignedBuffer::Allocate(4096).value();
  io::Transfer transfer;
  transfer.op = io::IoOp::kWrite;
  transfer.file = watched.file.get();
  transfer.data = buffer.data();
  transfer.length = 4096;
  std::atomic<bool> done{false};
  transfer.context = &done;
  transfer.done = [](io::Transfer* finished, absl::Status) noexcept {
    *static_cast<std::atomic<bool>*>(finished->context) = true;
  };
  watched.disk.engine().Submit(&transfer);
  watched.Await("/data", false);
  watched.Await("readiness", false);
  REQUIRE(watched.health[0]->stalled);
  REQUIRE(watched.board->Get("") == true);
  REQUIRE(watched.board->Get("liveness") == true);
  watched.disk.Release();
  watched.Await("/data", true);
  watched.Await("readiness", true);
  REQUIRE_FALSE(watched.health[0]->stalled);
}

TEST_CASE("Health watch: a full disk says space and keeps serving", "[app]") {
  Watched watched(uint64_t{1} << 20);
  watched.Start(std::chrono::seconds(30));
  REQUIRE(watched.health[0]->full);
  REQUIRE(watched.board->Get("/data") == true);
  REQUIRE(watched.board->Get("readiness") == true);
}

TEST_CASE("Health watch: draining turns the daemon and its readiness, not its liveness", "[app]") {
  Watched watched;
  watched.Start(std::chrono::seconds(30));
  watched.watch->Drain();
  REQUIRE(watched.board->Get("") == false);
  REQUIRE(watched.board->Get("readiness") == false);
  REQUIRE(watched.board->Get("liveness") == true);
  REQUIRE(watched.board->Get("/data") == true);
}

}  // namespace
}  // namespace moment
