// The state by tensor through the C ABI, against the fake daemon: what is sent, lost and repeated.
#include <set>
#include <thread>

#include "tests/client/fake_trainer.h"
#include "tests/support/catch.h"

namespace moment {
namespace {

using testing::Trainer;

Buffer BufferOf(uint32_t tensor, moment_segment segment, std::vector<float>& values) {
  return {tensor, segment, values.data(), MOMENT_TYPE_FLOAT32};
}

Write MainOf(uint32_t tensor, std::vector<float>& values) {
  Write write;
  write.buffers = {BufferOf(tensor, MOMENT_SEGMENT_MAIN, values)};
  return write;
}

TEST_CASE("Tensors: what is written is read back, with its t", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step();
  std::vector<float> exp_avg(3000, 0.25f);
  Write write;
  write.buffers = {BufferOf(1, MOMENT_SEGMENT_EXP_AVG, exp_avg),
                   {0, MOMENT_SEGMENT_EXP_AVG_SQ, nullptr, MOMENT_TYPE_DEFAULT}};
  write.steps = {{1, 17}, {2, 5}};
  const moment_commit commit = trainer.store->WriteTensors(write);
  CHECK(commit.sequence == 1);
  std::vector<float> read(3000);
  std::vector<float> zeros(6, 7.0f);
  CHECK(trainer.store->Read({BufferOf(1, MOMENT_SEGMENT_EXP_AVG, read),
                             BufferOf(0, MOMENT_SEGMENT_EXP_AVG_SQ, zeros)}) ==
        std::vector<uint64_t>{17, 1});
  CHECK(read == exp_avg);
  CHECK(zeros == std::vector<float>(6, 0.0f));
  CHECK(trainer.store->Steps() == std::vector<uint64_t>{1, 17, 5});
  CHECK(trainer.Step().sequence == 2);  // no main was written
}

TEST_CASE("Tensors: digests and resets name the caller's tensors", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step();
  std::vector<moment_tensor_digest> digests = trainer.store->Digest();
  REQUIRE(digests.size() == 3);
  for (uint32_t i = 0; i < 3; ++i) {
    // The store numbers them backwards.
    CHECK(digests[i].tensor == i);
    CHECK(digests[i].main == 100 + 2 - i);
    CHECK(digests[i].exp_avg_sq == 300 + 2 - i);
    CHECK(digests[i].t == (i < 2 ? 1 : 0));  // the empty one sat out
  }
  trainer.store->ResetMoments({{1, 1}});
  CHECK(trainer.store->Steps() == std::vector<uint64_t>{1, 0, 0});
  trainer.store->ResetMoments({});
  CHECK(trainer.store->Steps() == std::vector<uint64_t>{1, 0, 0});
  trainer.store->ResetAllMoments();
  CHECK(trainer.store->Steps() == std::vector<uint64_t>{0, 0, 0});
}

TEST_CASE("Tensors: fewer digests and steps than there are, and their number", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  moment_tensor_digest digests[2] = {};
  size_t count = 0;
  REQUIRE(moment_digest(trainer.store->get(), nullptr, 0, digests, 1, &count) == MOMENT_OK);
  CHECK(count == 3);
  CHECK(digests[0].main == 102);
  CHECK(digests[1].main == 0);
  uint64_t t[2] = {9, 9};
  REQUIRE(moment_steps(trainer.store->get(), t, 1, &count) == MOMENT_OK);
  CHECK(count == 3);
  CHECK(t[0] == 0);
  CHECK(t[1] == 9);
  CHECK(moment_steps(trainer.store->get(), t, 1, nullptr) == MOMENT_INVALID_ARGUMENT);
  CHECK(moment_digest(trainer.store->get(), nullptr, 0, digests, 1, nullptr) ==
        MOMENT_INVALID_ARGUMENT);
  CHECK(moment_read_tensors(trainer.store->get(), nullptr, 1, nullptr) == MOMENT_INVALID_ARGUMENT);
  CHECK(moment_write_tensors(trainer.store->get(), nullptr, nullptr) == MOMENT_INVALID_ARGUMENT);
}

TEST_CASE("Tensors: a write cut before or after it was applied is done when it returns",
          "[client]") {
  const bool after = GENERATE(false, true);
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.Step();
  auto& faults = trainer.daemon->faults();
  (after ? faults.drop_write_after : faults.drop_write_before) = 1;
  std::vector<float> values(3000, 0.125f);
  Write write = MainOf(1, values);
  write.steps = {{1, 30}};
  CHECK(trainer.store->WriteTensors(write).sequence == 1);
  CHECK(trainer.store->Info().reconnects == 1);
  const std::vector<v1::WriteTensorRequest> sent = trainer.daemon->writes();
  REQUIRE(sent.size() == 2);
  CHECK(sent[0].operation() == sent[1].operation());
  CHECK(sent[0].binding() == sent[1].binding());
  std::vector<float> read(3000);
  CHECK(trainer.store->Read({BufferOf(1, MOMENT_SEGMENT_MAIN, read)}) == std::vector<uint64_t>{30});
  CHECK(read == values);
  trainer.store->Materialize();
  CHECK(trainer.Step().sequence == 2);
}

TEST_CASE("Tensors: each call has its own operation and its own buffers", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  std::vector<float> values(3000);
  std::set<std::string> operations;
  std::set<uint64_t> bindings;
  for (int i = 0; i < 3; ++i) {
    trainer.store->WriteTensors(MainOf(1, values));
    operations.insert(trainer.daemon->writes().back().operation());
    bindings.insert(trainer.daemon->writes().back().binding());
  }
  CHECK(operations.size() == 3);
  CHECK(bindings.size() == 3);
}

TEST_CASE("Tensors: a step waits until parameters follow the mains that were written", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  std::vector<float> b(3000, 2.0f);
  std::vector<float> a(6, 3.0f);
  const auto step = [&] { return trainer.CodeOf([&] { trainer.Step(); }); };
  CHECK(trainer.store->Info().parameters_stale == 0);
  Write both = MainOf(1, b);
  both.buffers.push_back(BufferOf(0, MOMENT_SEGMENT_MAIN, a));
  trainer.store->WriteTensors(both);
  CHECK(trainer.store->Info().parameters_stale == 1);
  CHECK(step() == MOMENT_FAILED_PRECONDITION);
  CHECK(trainer.CodeOf([&] { trainer.store->Skip(); }) == MOMENT_FAILED_PRECONDITION);
  trainer.store->Materialize({{1, 1}});
  CHECK(step() == MOMENT_FAILED_PRECONDITION);
  trainer.store->Refresh({{0, 1}});  // the parameter counts
  CHECK(step() == MOMENT_OK);
  trainer.store->WriteTensors(both);
  trainer.store->Materialize();
  CHECK(step() == MOMENT_OK);
  both.parameters_match = true;
  trainer.store->WriteTensors(both);
  CHECK(trainer.store->Info().parameters_stale == 0);
  CHECK(step() == MOMENT_OK);
  both.parameters_match = false;
  trainer.store->WriteTensors(both);
  trainer.store->RefreshAll(/*discard=*/true);
  CHECK(step() == MOMENT_OK);
}

TEST_CASE("Tensors: a write that was refused leaves parameters as fresh as they were", "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  std::vector<float> values(3000);
  Write write = MainOf(1, values);
  write.steps = {{7, 1}};
  CHECK(trainer.CodeOf([&] { trainer.store->WriteTensors(write); }) == MOMENT_INVALID_ARGUMENT);
  CHECK(trainer.daemon->writes().empty());
  CHECK(trainer.store->Info().parameters_stale == 0);
  CHECK(trainer.Step().sequence == 1);
}

TEST_CASE("Tensors: a cancelled write may have happened: its parameters count as older",
          "[client]") {
  Trainer trainer;
  trainer.OpenAndFill();
  trainer.daemon->faults().hold_steps = true;
  std::vector<float> values(3000, 4.0f);
  moment_status status = MOMENT_OK;
  std::thread writer(
      [&] { status = trainer.CodeOf([&] { trainer.store->WriteTensors(MainOf(1, values)); }); });
  while (status == MOMENT_OK) {
    trainer.store->Cancel();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (trainer.store->Info().parameters_stale != 0) {
      break;
    }
  }
  writer.join();
  CHECK(status == MOMENT_CANCELLED);
  CHECK(trainer.store->Info().parameters_stale == 1);
  trainer.daemon->faults().hold_steps = false;
  trainer.store->Materialize();
  CHECK(trainer.Step().sequence == 1);
}

TEST_CASE("Tensors: nothing is read of an empty store, nothing written behind a step in flight",
          "[client]") {
  Trainer trainer;
  trainer.Open();
  std::vector<float> values(3000);
  const auto code = [&](const std::function<void()>& call) { return trainer.CodeOf(call); };
  const auto read = [&] { trainer.store->Read({BufferOf(1, MOMENT_SEGMENT_MAIN, values)}); };
  const auto write = [&] { trainer.store->WriteTensors(MainOf(1, values)); };
  CHECK(code(read) == MOMENT_FAILED_PRECONDITION);
  CHECK(code(write) == MOMENT_FAILED_PRECONDITION);
  CHECK(code([&] { trainer.store->Steps(); }) == MOMENT_FAILED_PRECONDITION);
  trainer.store->RefreshAll();
  trainer.daemon->faults().fail_step_midway = 1;
  CHECK(code([&] { trainer.Step(); }) == MOMENT_INTERNAL);
  CHECK(code(write) == MOMENT_FAILED_PRECONDITION);
  CHECK(code([&] { trainer.store->ResetAllMoments(); }) == MOMENT_FAILED_PRECONDITION);
  CHECK(code(read) == MOMENT_OK);  // the store stands at an answered step
  trainer.store->Materialize();
  CHECK(code(write) == MOMENT_OK);
}

}  // namespace
}  // namespace moment
