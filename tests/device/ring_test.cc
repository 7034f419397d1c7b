#include "daemon/device/ring.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tests/device/ring_client.h"
#include "tests/support/catch.h"

namespace moment::device {
namespace {

constexpr absl::Duration kLongEnough = absl::Seconds(30);

// Collects what ends, in the order in which it ends.
class Results {
 public:
  struct Entry {
    TransportCommand* command;
    absl::Status status;
  };

  static void Done(TransportCommand* command, absl::Status status) noexcept {
    auto* results = static_cast<Results*>(command->context);
    absl::MutexLock lock(&results->mutex_);
    results->entries_.push_back({command, std::move(status)});
  }

  // The results once there are `count`; fewer if that takes too long.
  std::vector<Entry> Wait(size_t count) {
    absl::MutexLock lock(&mutex_);
    wanted_ = count;
    mutex_.AwaitWithTimeout(absl::Condition(this, &Results::Enough), kLongEnough);
    return entries_;
  }

 private:
  bool Enough() const { return entries_.size() >= wanted_; }

  absl::Mutex mutex_;
  size_t wanted_ = 0;
  std::vector<Entry> entries_;
};

struct Command : TransportCommand {
  Command(Results& results, TransportOp operation, uint32_t to_slot,
          std::vector<TransportRun> its_runs)
      : owned_runs(std::move(its_runs)) {
    op = operation;
    slot = to_slot;
    runs = owned_runs;
    done = &Results::Done;
    context = &results;
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  std::vector<TransportRun> owned_runs;
};

std::unique_ptr<RingTransport> MakeRing(uint32_t slots = 3) {
  auto ring = RingTransport::Create({slots, 8192, 16});
  REQUIRE(ring.ok());
  return *std::move(ring);
}

// `count` commands that carry nothing.
std::vector<std::unique_ptr<Command>> EmptyCommands(Results& results, uint32_t count,
                                                    uint32_t slots) {
  std::vector<std::unique_ptr<Command>> commands;
  for (uint32_t i = 0; i < count; ++i) {
    commands.push_back(std::make_unique<Command>(results, TransportOp::kGradientsIn, i % slots,
                                                 std::vector<TransportRun>()));
  }
  return commands;
}

bool AllAborted(const std::vector<Results::Entry>& entries, const std::string& reason) {
  for (const Results::Entry& entry : entries) {
    if (!absl::IsAborted(entry.status) ||
        std::string(entry.status.message()).find(reason) == std::string::npos) {
      UNSCOPED_INFO(entry.status.ToString());
      return false;
    }
  }
  return true;
}

TEST_CASE("RingTransport: carries gradients in and parameters out", "[device]") {
  std::vector<std::byte> gradient(100, std::byte{7});
  std::vector<std::byte> parameter(100, std::byte{9});
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), true);
  client.SetTensor(5, {gradient, parameter});
  Results results;
  Command in(results, TransportOp::kGradientsIn, 1, {{5, 10, 20, 64}});
  ring->Submit(&in);
  REQUIRE(results.Wait(1).size() == 1);
  CHECK(results.Wait(1)[0].status.ok());
  CHECK(ring->slot(1)[63] == std::byte{0});
  CHECK(ring->slot(1)[64] == std::byte{7});
  CHECK(ring->slot(1)[83] == std::byte{7});
  CHECK(ring->slot(1)[84] == std::byte{0});

  std::memset(ring->slot(2).data(), 3, 8);
  Command out(results, TransportOp::kParametersOut, 2, {{5, 92, 8, 0}});
  ring->Submit(&out);
  REQUIRE(results.Wait(2).size() == 2);
  client.WaitForIdle();
  CHECK(parameter[91] == std::byte{9});
  CHECK(parameter[92] == std::byte{3});
  CHECK(parameter[99] == std::byte{3});

  Command parameters_in(results, TransportOp::kParametersIn, 0, {{5, 91, 2, 4000}});
  ring->Submit(&parameters_in);
  REQUIRE(results.Wait(3).size() == 3);
  CHECK(ring->slot(0)[4000] == std::byte{9});
  CHECK(ring->slot(0)[4001] == std::byte{3});
}

TEST_CASE("RingTransport: commands end in the order submitted, many more than slots", "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 5000, 3);
  auto ring = MakeRing(3);
  RingClient client(ring->descriptors(), true);
  for (auto& command : commands) {
    ring->Submit(command.get());
  }
  const auto entries = results.Wait(5000);
  REQUIRE(entries.size() == 5000);
  bool in_order = true;
  for (size_t i = 0; i < entries.size(); ++i) {
    in_order = in_order && entries[i].command == commands[i].get() && entries[i].status.ok();
  }
  CHECK(in_order);
}

TEST_CASE("RingTransport: never issues more commands than slots", "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 10, 3);
  auto ring = MakeRing(3);
  RingClient client(ring->descriptors(), false);
  for (auto& command : commands) {
    ring->Submit(command.get());
  }
  for (uint64_t done = 0; done < 10; ++done) {
    client.WaitForIssued(std::min<uint64_t>(done + 3, 10));
    CHECK(client.header().issued.load() == std::min<uint64_t>(done + 3, 10));
    CHECK(client.command(done % 3).ticket == done + 1);
    CHECK(client.command(done % 3).slot == done % 3);
    CHECK(client.ExecuteOne() == done + 1);
  }
  CHECK(results.Wait(10).size() == 10);
}

TEST_CASE("RingTransport: commands carry the generation of their Attach", "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 2, 2);
  auto ring = MakeRing(2);
  RingClient client(ring->descriptors(), false);
  ring->SetGeneration(41);
  ring->Submit(commands[0].get());
  ring->SetGeneration(42);
  ring->Submit(commands[1].get());
  client.WaitForIssued(2);
  CHECK(client.command(0).generation == 41);
  CHECK(client.command(1).generation == 42);
}

TEST_CASE("RingTransport: a missing buffer is named, and the ring goes on", "[device]") {
  std::vector<std::byte> gradient(100);
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), true);
  client.SetTensor(1, {gradient, {}});
  Results results;
  Command missing(results, TransportOp::kGradientsIn, 0, {{1, 0, 100, 0}, {77, 8, 100, 128}});
  Command small(results, TransportOp::kGradientsIn, 1, {{1, 50, 51, 0}});
  Command fine(results, TransportOp::kGradientsIn, 2, {{1, 50, 50, 0}});
  ring->Submit(&missing);
  ring->Submit(&small);
  ring->Submit(&fine);
  const auto entries = results.Wait(3);
  REQUIRE(entries.size() == 3);
  CHECK(absl::IsInvalidArgument(entries[0].status));
  CHECK(std::string(entries[0].status.message()).find("gradient buffer of tensor 77") !=
        std::string::npos);
  CHECK(absl::IsInvalidArgument(entries[1].status));
  CHECK(entries[2].status.ok());
}

TEST_CASE("RingTransport: commands for segments carry their segment and their binding",
          "[device]") {
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), false);
  Results results;
  Command in(results, TransportOp::kSegmentsIn, 0, {{4, 8, 16, 0, v1::RING_SEGMENT_EXP_AVG_SQ}});
  in.binding = 11;
  Command out(results, TransportOp::kSegmentsOut, 1, {{5, 0, 4, 32, v1::RING_SEGMENT_MAIN}});
  out.binding = 12;
  ring->Submit(&in);
  ring->Submit(&out);
  client.WaitForIssued(2);
  CHECK(client.command(0).op == v1::RING_OP_SEGMENTS_IN);
  CHECK(client.command(0).binding == 11);
  CHECK(client.runs(0)[0].tensor == 4);
  CHECK(client.runs(0)[0].segment == v1::RING_SEGMENT_EXP_AVG_SQ);
  CHECK(client.runs(0)[0].tensor_offset_bytes == 8);
  CHECK(client.command(1).op == v1::RING_OP_SEGMENTS_OUT);
  CHECK(client.command(1).binding == 12);
  CHECK(client.runs(1)[0].segment == v1::RING_SEGMENT_MAIN);
  CHECK(client.runs(1)[0].slot_offset_bytes == 32);
}

TEST_CASE("RingTransport: a missing segment buffer is named by its segment", "[device]") {
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), true);
  const std::pair<uint32_t, std::string> named[] = {{v1::RING_SEGMENT_MAIN, "main"},
                                                    {v1::RING_SEGMENT_EXP_AVG, "exp_avg"},
                                                    {v1::RING_SEGMENT_EXP_AVG_SQ, "exp_avg_sq"}};
  for (const auto& [segment, name] : named) {
    Results results;
    Command command(results, TransportOp::kSegmentsOut, 0, {{6, 0, 8, 0, segment}});
    ring->Submit(&command);
    const auto entries = results.Wait(1);
    REQUIRE(entries.size() == 1);
    CHECK(absl::IsInvalidArgument(entries[0].status));
    CHECK(std::string(entries[0].status.message()).find("no " + name + " buffer of tensor 6") !=
          std::string::npos);
  }
}

TEST_CASE("RingTransport: a client that does not say which buffer is missing is believed",
          "[device]") {
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), false);
  Results results;
  Command command(results, TransportOp::kParametersOut, 0, {{3, 0, 8, 0}, {9, 0, 8, 8}});
  ring->Submit(&command);
  client.WaitForIssued(1);
  client.command(0).result = v1::RING_RESULT_NO_BUFFER;
  client.header().completed.store(1, std::memory_order_release);
  client.Signal();
  const auto entries = results.Wait(1);
  REQUIRE(entries.size() == 1);
  CHECK(absl::IsInvalidArgument(entries[0].status));
  CHECK(std::string(entries[0].status.message()).find("tensors 3 to 9") != std::string::npos);
}

TEST_CASE("RingTransport: a command that a client calls malformed is an internal error",
          "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 1, 3);
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), false);
  ring->Submit(commands[0].get());
  client.WaitForIssued(1);
  // An acknowledgement without a result is one: that is what the daemon left there.
  client.header().completed.store(1, std::memory_order_release);
  client.Signal();
  REQUIRE(results.Wait(1).size() == 1);
  CHECK(absl::IsInternal(results.Wait(1)[0].status));
}

TEST_CASE("RingTransport: refuses a command that does not fit, without asking the client",
          "[device]") {
  auto ring = MakeRing(2);
  Results results;
  Command slot(results, TransportOp::kGradientsIn, 2, {});
  Command long_run(results, TransportOp::kGradientsIn, 0, {{1, 0, 8193, 0}});
  Command wrapping(results, TransportOp::kGradientsIn, 0, {{1, 0, UINT64_MAX, 16}});
  Command many(results, TransportOp::kGradientsIn, 0, std::vector<TransportRun>(17));
  for (Command* command : {&slot, &long_run, &wrapping, &many}) {
    ring->Submit(command);
  }
  const auto entries = results.Wait(4);
  REQUIRE(entries.size() == 4);
  for (const auto& entry : entries) {
    CHECK(absl::IsInvalidArgument(entry.status));
  }
}

TEST_CASE("RingTransport: the client cannot resize or reseal the shared memory", "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 1, 3);
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), true);
  for (int fd : {client.control_fd(), client.slots_fd()}) {
    errno = 0;
    CHECK(::ftruncate(fd, 0) == -1);
    CHECK(errno == EPERM);
    CHECK(::ftruncate(fd, 1 << 30) == -1);
    CHECK(errno == EPERM);
    CHECK(::fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE) == -1);
    CHECK(errno == EPERM);
  }
  ring->Submit(commands[0].get());
  REQUIRE(results.Wait(1).size() == 1);
  CHECK(results.Wait(1)[0].status.ok());
}

TEST_CASE("RingTransport: holes that the client punches read as zeros", "[device]") {
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), false);
  std::memset(ring->slot(0).data(), 1, 8192);
  REQUIRE(::fallocate(client.slots_fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192) == 0);
  CHECK(ring->slot(0)[100] == std::byte{0});
}

// Two commands are outstanding; the client writes nonsense and signals.
void CheckNonsenseCloses(void (*spoil)(RingClient&), const std::string& reason) {
  Results results;
  auto commands = EmptyCommands(results, 6, 3);
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), false);
  for (size_t i = 0; i < 5; ++i) {
    ring->Submit(commands[i].get());
  }
  client.WaitForIssued(3);
  spoil(client);
  client.Signal();
  const auto entries = results.Wait(5);
  REQUIRE(entries.size() == 5);
  CHECK(AllAborted(entries, reason));
  ring->Submit(commands[5].get());
  REQUIRE(results.Wait(6).size() == 6);
  CHECK(AllAborted(results.Wait(6), reason));
}

TEST_CASE("RingTransport: an acknowledgement of what was not issued closes the ring", "[device]") {
  CheckNonsenseCloses(
      [](RingClient& client) { client.header().completed.store(4, std::memory_order_release); },
      "acknowledged command 4");
}

TEST_CASE("RingTransport: a counter of all ones closes the ring", "[device]") {
  CheckNonsenseCloses([](RingClient& client) { client.header().completed.store(UINT64_MAX); },
                      "acknowledged");
}

TEST_CASE("RingTransport: an unknown result closes the ring", "[device]") {
  CheckNonsenseCloses(
      [](RingClient& client) {
        client.command(0).result = 77;
        client.header().completed.store(1, std::memory_order_release);
      },
      "unknown result 77");
}

TEST_CASE("RingTransport: a counter that goes back closes the ring", "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 2, 3);
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), false);
  ring->Submit(commands[0].get());
  ring->Submit(commands[1].get());
  client.WaitForIssued(2);
  client.ExecuteOne();
  REQUIRE(results.Wait(1).size() == 1);
  client.header().completed.store(0, std::memory_order_release);
  client.Signal();
  const auto entries = results.Wait(2);
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].status.ok());
  CHECK(AllAborted({entries[1]}, "acknowledged command 0"));
}

TEST_CASE("RingTransport: what the client writes over its commands does not reach the daemon",
          "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 4, 3);
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), false);
  for (auto& command : commands) {
    ring->Submit(command.get());
  }
  client.WaitForIssued(3);
  for (uint64_t entry = 0; entry < 3; ++entry) {
    client.command(entry) = {};  // result OK
    client.command(entry).slot = 0xffffffff;
    client.command(entry).run_count = 0xffffffff;
  }
  client.header().slots = 0;
  client.header().slot_bytes = UINT64_MAX;
  client.header().issued.store(999);
  client.header().completed.store(3, std::memory_order_release);
  client.Signal();
  const auto entries = results.Wait(3);
  REQUIRE(entries.size() == 3);
  CHECK(entries[2].status.ok());
  CHECK(ring->slot_count() == 3);
  CHECK(ring->slot_bytes() == 8192);
}

TEST_CASE("RingTransport: an eventfd that the client filled does not block the daemon",
          "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 1, 3);
  auto ring = MakeRing();
  const int to_client = ring->descriptors()[2];
  RingClient client(ring->descriptors(), false);
  const uint64_t full = UINT64_MAX - 1;
  REQUIRE(::write(to_client, &full, sizeof(full)) == sizeof(full));
  REQUIRE(::fcntl(to_client, F_SETFL, 0) == 0);  // its O_NONBLOCK is shared
  ring->Submit(commands[0].get());
  client.ExecuteOne();
  REQUIRE(results.Wait(1).size() == 1);
  CHECK(results.Wait(1)[0].status.ok());
}

TEST_CASE("RingTransport: Close ends what is outstanding and what comes later", "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 9, 3);
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), false);
  for (size_t i = 0; i < 8; ++i) {
    ring->Submit(commands[i].get());
  }
  ring->Close(absl::UnavailableError("session s1 ended"));
  ring->Close(absl::UnavailableError("a second reason"));
  REQUIRE(results.Wait(8).size() == 8);
  ring->Submit(commands[8].get());
  const auto entries = results.Wait(9);
  REQUIRE(entries.size() == 9);
  CHECK(AllAborted(entries, "session s1 ended"));
  for (size_t i = 0; i < 9; ++i) {
    CHECK(entries[i].command == commands[i].get());
  }
}

TEST_CASE("RingTransport: destruction ends what is outstanding", "[device]") {
  Results results;
  auto commands = EmptyCommands(results, 5, 3);
  {
    auto ring = MakeRing();
    for (auto& command : commands) {
      ring->Submit(command.get());
    }
  }
  const auto entries = results.Wait(5);
  REQUIRE(entries.size() == 5);
  CHECK(AllAborted(entries, "gone"));
}

// A process that waits for its end.
class Child {
 public:
  Child() : pid_(::fork()) {
    if (pid_ == 0) {
      while (true) {
        ::pause();
      }
    }
    pidfd_ = base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  }
  ~Child() {
    Kill();
    ::waitpid(pid_, nullptr, 0);
  }
  int pidfd() const { return pidfd_.get(); }
  void Kill() { ::kill(pid_, SIGKILL); }

 private:
  pid_t pid_;
  base::UniqueFd pidfd_;
};

TEST_CASE("RingTransport: the trainer's death ends what is outstanding", "[device]") {
  Child child;
  Results results;
  auto commands = EmptyCommands(results, 6, 3);
  auto ring = MakeRing();
  RingClient client(ring->descriptors(), false);
  REQUIRE(ring->WatchPeer(child.pidfd()).ok());
  for (size_t i = 0; i < 5; ++i) {
    ring->Submit(commands[i].get());
  }
  client.WaitForIssued(3);
  client.ExecuteOne();
  REQUIRE(results.Wait(1).size() == 1);
  child.Kill();
  const auto entries = results.Wait(5);
  REQUIRE(entries.size() == 5);
  CHECK(entries[0].status.ok());
  CHECK(AllAborted({entries.begin() + 1, entries.end()}, "process ended"));
  ring->Submit(commands[5].get());
  CHECK(results.Wait(6).size() == 6);
}

TEST_CASE("RingTransport: a process that is dead already closes the ring at once", "[device]") {
  Child child;
  child.Kill();
  Results results;
  auto commands = EmptyCommands(results, 2, 3);
  auto ring = MakeRing();
  ring->Submit(commands[0].get());
  REQUIRE(ring->WatchPeer(child.pidfd()).ok());
  REQUIRE(results.Wait(1).size() == 1);
  CHECK(AllAborted(results.Wait(1), "process ended"));
}

TEST_CASE("RingTransport: a descriptor that cannot be waited for is refused as pidfd", "[device]") {
  auto ring = MakeRing();
  base::UniqueFd file(::memfd_create("not-a-pidfd", MFD_CLOEXEC));
  CHECK(absl::IsInvalidArgument(ring->WatchPeer(file.get())));
  CHECK_FALSE(ring->WatchPeer(-1).ok());
}

TEST_CASE("RingTransport: a geometry without sense is refused", "[device]") {
  CHECK(absl::IsInvalidArgument(RingTransport::Create({0, 4096, 1}).status()));
  CHECK(absl::IsInvalidArgument(RingTransport::Create({1, 0, 1}).status()));
  CHECK(absl::IsInvalidArgument(RingTransport::Create({1, 4095, 1}).status()));
  CHECK(absl::IsInvalidArgument(RingTransport::Create({1, 4096, 0}).status()));
  CHECK(absl::IsInvalidArgument(RingTransport::Create({100000, 4096, 1}).status()));
}

}  // namespace
}  // namespace moment::device
