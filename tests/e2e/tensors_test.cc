// The state by tensor through the C++ client and the real program.
#include <signal.h>

#include <thread>
#include <vector>

#include "client/include/moment/moment.hpp"
#include "tests/e2e/daemon_process.h"
#include "tests/support/catch.h"

namespace moment::e2e {
namespace {

constexpr size_t kElements = 500'000;

// One trainer of two tensors; values are numbers that every type holds.
struct Trainer {
  explicit Trainer(const Daemon& daemon, moment_resume resume = MOMENT_RESUME_ASK) {
    options.job = "job";
    options.socket = daemon.socket();
    options.tensors = {{"large", {kElements}}, {"small", {3}}};
    options.bucket_elements = 200'000;
    options.resume = resume;
    store = std::make_unique<Store>(options);
    store->Attach({large.data(), small.data()});
  }

  OpenOptions options;
  std::vector<float> large = std::vector<float>(kElements, 1.0f);
  std::vector<float> small = std::vector<float>(3, 2.0f);
  std::unique_ptr<Store> store;
};

std::vector<float> Numbers(size_t count, int seed) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) {
    numbers[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 256);
  }
  return numbers;
}

Buffer BufferOf(uint32_t tensor, moment_segment segment, std::vector<float>& values) {
  return {tensor, segment, values.data(), MOMENT_TYPE_FLOAT32};
}

TEST_CASE("Tensors: what was written is there after a restart of the daemon", "[e2e]") {
  const Place place;
  std::vector<float> mains = Numbers(kElements, 1);
  std::vector<float> exp_avg = Numbers(3, 2);
  std::vector<moment_tensor_digest> digests;
  {
    Daemon daemon(place);
    Trainer trainer(daemon);
    trainer.store->RefreshAll();
    Write write;
    write.buffers = {BufferOf(0, MOMENT_SEGMENT_MAIN, mains),
                     BufferOf(1, MOMENT_SEGMENT_EXP_AVG, exp_avg)};
    write.steps = {{0, 5}, {1, 6}};
    REQUIRE(trainer.store->WriteTensors(write).id == 2);
    digests = trainer.store->Digest();
    daemon.process().Signal(SIGKILL);
    REQUIRE(daemon.process().Wait().code == -SIGKILL);
  }
  Daemon daemon(place);
  Trainer trainer(daemon, MOMENT_RESUME_MUST);
  trainer.store->Materialize();
  REQUIRE(trainer.large == mains);
  std::vector<float> read(3, 9.0f);
  std::vector<float> zeros(kElements, 9.0f);
  REQUIRE(trainer.store->Read({BufferOf(1, MOMENT_SEGMENT_EXP_AVG, read),
                               BufferOf(0, MOMENT_SEGMENT_EXP_AVG_SQ, zeros)}) ==
          std::vector<uint64_t>{6, 5});
  REQUIRE(read == exp_avg);
  REQUIRE(zeros == std::vector<float>(kElements, 0.0f));
  const std::vector<moment_tensor_digest> after = trainer.store->Digest();
  REQUIRE(after.size() == 2);
  for (size_t i = 0; i < after.size(); ++i) {
    CHECK(after[i].main == digests[i].main);
    CHECK(after[i].exp_avg == digests[i].exp_avg);
    CHECK(after[i].exp_avg_sq == digests[i].exp_avg_sq);
    CHECK(after[i].t == digests[i].t);
  }
  trainer.store->ResetMoments({{1, 1}});
  REQUIRE(trainer.store->Steps() == std::vector<uint64_t>{5, 0});
  trainer.store->Close();
  REQUIRE(daemon.Stop().code == 0);
}

TEST_CASE("Tensors: a write that is given up leaves the state it found, or the one it asked for",
          "[e2e]") {
  const Place place;
  Daemon daemon(place);
  Trainer trainer(daemon);
  trainer.store->RefreshAll();
  const std::vector<float> before = trainer.large;
  std::vector<float> mains = Numbers(kElements, 3);
  for (int round = 0; round < 20; ++round) {
    Write write;
    write.buffers = {BufferOf(0, MOMENT_SEGMENT_MAIN, mains)};
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(200 * round));
      trainer.store->Cancel();
    });
    try {
      trainer.store->WriteTensors(write);
    } catch (const Error& error) {
      CHECK(error.code() == MOMENT_CANCELLED);
    }
    canceller.join();
    // The next call waits for the one that was given up, whose buffers are gone.
    std::vector<float> read(kElements);
    trainer.store->Read({BufferOf(0, MOMENT_SEGMENT_MAIN, read)});
    CHECK((read == before || read == mains));
    write.buffers[0].data = trainer.large.data();
    write.parameters_match = true;
    trainer.store->WriteTensors(write);
    trainer.store->Materialize();
    CHECK(trainer.large == before);
  }
  trainer.store->Close();
  REQUIRE(daemon.Stop().code == 0);
}

}  // namespace
}  // namespace moment::e2e
