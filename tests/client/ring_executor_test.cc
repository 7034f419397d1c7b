#include "client/src/ring_executor.h"

#include <cstring>
#include <limits>
#include <vector>

#include "tests/client/fake_ring.h"
#include "tests/support/catch.h"

namespace moment::client {
namespace {

constexpr uint64_t kGeneration = 3;

// Two tensors of eight bytes; a gradient for the second alone.
struct Fixture {
  Fixture() : table(2), ring(2, 64, 2), parameters{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 9, 9, 9}} {
    for (std::vector<uint8_t>& values : parameters) {
      values.resize(8);
    }
    table.BindParameters({Of(parameters[0]), Of(parameters[1])}, kGeneration);
    table.BindGradients({{}, Of(gradient)});
    executor = *RingExecutor::Start(ring.Descriptors(), &table);
  }

  static Buffer Of(std::vector<uint8_t>& values) {
    return {reinterpret_cast<std::byte*>(values.data()), values.size()};
  }

  v1::RingResult In(uint32_t tensor, uint64_t offset, uint64_t length, uint64_t slot_offset = 0) {
    return ring.Run(v1::RING_OP_PARAMETERS_IN, kGeneration,
                    {tensor, 0, offset, length, slot_offset});
  }

  TensorTable table;
  testing::FakeRing ring;
  std::vector<std::vector<uint8_t>> parameters;
  std::vector<uint8_t> gradient = std::vector<uint8_t>(8, 7);
  std::unique_ptr<RingExecutor> executor;
};

TEST_CASE("Ring: bytes go in and out where the run says", "[client]") {
  Fixture fixture;
  CHECK(fixture.In(0, 2, 4, 8) == v1::RING_RESULT_OK);
  const uint8_t expected[] = {3, 4, 5, 6};
  CHECK(std::memcmp(fixture.ring.slot(0) + 8, expected, 4) == 0);
  CHECK(fixture.ring.Run(v1::RING_OP_GRADIENTS_IN, kGeneration, {1, 0, 0, 8, 0}) ==
        v1::RING_RESULT_OK);
  CHECK(std::to_integer<int>(fixture.ring.slot(0)[7]) == 7);
  std::memset(fixture.ring.slot(0), 42, 64);
  CHECK(fixture.ring.Run(v1::RING_OP_PARAMETERS_OUT, kGeneration, {1, 0, 6, 2, 0}) ==
        v1::RING_RESULT_OK);
  CHECK(fixture.parameters[1] == std::vector<uint8_t>{9, 9, 9, 9, 0, 0, 42, 42});
  CHECK(fixture.executor->parameter_writes() == 1);
}

TEST_CASE("Ring: a run outside of its tensor's buffer is refused and touches nothing", "[client]") {
  Fixture fixture;
  constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();
  CHECK(fixture.In(0, 0, 9) == v1::RING_RESULT_NO_BUFFER);
  CHECK(fixture.In(0, 8, 1) == v1::RING_RESULT_NO_BUFFER);
  CHECK(fixture.In(0, kHuge, 2) == v1::RING_RESULT_NO_BUFFER);
  CHECK(fixture.In(2, 0, 1) == v1::RING_RESULT_NO_BUFFER);
  CHECK(fixture.ring.Run(v1::RING_OP_GRADIENTS_IN, kGeneration, {0, 0, 0, 8, 0}) ==
        v1::RING_RESULT_NO_BUFFER);
  CHECK(fixture.In(0, 8, 0) == v1::RING_RESULT_OK);
}

TEST_CASE("Ring: a run outside of its slot is refused", "[client]") {
  Fixture fixture;
  CHECK(fixture.In(0, 0, 8, 57) == v1::RING_RESULT_BAD_COMMAND);
  CHECK(fixture.In(0, 0, 8, std::numeric_limits<uint64_t>::max()) == v1::RING_RESULT_BAD_COMMAND);
  CHECK(fixture.In(0, 0, 8, 56) == v1::RING_RESULT_OK);
}

TEST_CASE("Ring: commands of another Attach find no buffer", "[client]") {
  Fixture fixture;
  CHECK(fixture.ring.Run(v1::RING_OP_PARAMETERS_OUT, kGeneration - 1, {0, 0, 0, 8, 0}) ==
        v1::RING_RESULT_NO_BUFFER);
  CHECK(fixture.executor->parameter_writes() == 0);
}

TEST_CASE("Ring: segments go to and from the buffers of the call that is bound", "[client]") {
  Fixture fixture;
  std::vector<uint8_t> main = {1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<uint8_t> exp_avg(4, 9);
  fixture.table.BindSegments({{1, v1::RING_SEGMENT_MAIN, Fixture::Of(main)},
                              {1, v1::RING_SEGMENT_EXP_AVG, Fixture::Of(exp_avg)}},
                             20);
  CHECK(fixture.ring.Run(v1::RING_OP_SEGMENTS_IN, kGeneration, {1, v1::RING_SEGMENT_MAIN, 2, 4, 8},
                         20) == v1::RING_RESULT_OK);
  const uint8_t expected[] = {3, 4, 5, 6};
  CHECK(std::memcmp(fixture.ring.slot(0) + 8, expected, 4) == 0);
  CHECK(fixture.ring.Run(v1::RING_OP_SEGMENTS_OUT, kGeneration,
                         {1, v1::RING_SEGMENT_EXP_AVG, 1, 3, 9}, 20) == v1::RING_RESULT_OK);
  CHECK(exp_avg == std::vector<uint8_t>{9, 4, 5, 6});
  CHECK(main == std::vector<uint8_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(fixture.executor->parameter_writes() == 0);
}

TEST_CASE("Ring: segments of another call, another tensor or beyond the buffer are refused",
          "[client]") {
  Fixture fixture;
  std::vector<uint8_t> main(8, 1);
  fixture.table.BindSegments({{1, v1::RING_SEGMENT_MAIN, Fixture::Of(main)}}, 20);
  const auto out = v1::RING_OP_SEGMENTS_OUT;
  for (const v1::RingRun& run : std::vector<v1::RingRun>{{1, v1::RING_SEGMENT_MAIN, 4, 5, 0},
                                                         {1, v1::RING_SEGMENT_EXP_AVG, 0, 8, 0},
                                                         {0, v1::RING_SEGMENT_MAIN, 0, 8, 0},
                                                         {1, 77, 0, 8, 0}}) {
    CHECK(fixture.ring.Run(out, kGeneration, run, 20) == v1::RING_RESULT_NO_BUFFER);
  }
  const v1::RingRun good = {1, v1::RING_SEGMENT_MAIN, 0, 8, 0};
  CHECK(fixture.ring.Run(out, kGeneration, good, 19) == v1::RING_RESULT_NO_BUFFER);
  CHECK(fixture.ring.Run(out, kGeneration, good, 20) == v1::RING_RESULT_OK);
  fixture.table.ClearSegments();
  CHECK(fixture.ring.Run(out, kGeneration, good, 20) == v1::RING_RESULT_NO_BUFFER);
  CHECK_FALSE(fixture.ring.timed_out());
}

TEST_CASE("Ring: malformed commands are answered and the next one runs", "[client]") {
  Fixture fixture;
  v1::RingCommand command = {};
  command.generation = kGeneration;
  command.ticket = 1;
  command.op = 9;
  CHECK(fixture.ring.RunRaw(command, {}) == v1::RING_RESULT_BAD_COMMAND);
  command.op = v1::RING_OP_PARAMETERS_IN;
  command.ticket = 7;
  CHECK(fixture.ring.RunRaw(command, {}) == v1::RING_RESULT_BAD_COMMAND);
  command.ticket = 3;
  command.slot = 2;
  CHECK(fixture.ring.RunRaw(command, {}) == v1::RING_RESULT_BAD_COMMAND);
  command.ticket = 4;
  command.slot = 0;
  command.run_count = 3;
  CHECK(fixture.ring.RunRaw(command, {}) == v1::RING_RESULT_BAD_COMMAND);
  CHECK(fixture.In(0, 0, 8) == v1::RING_RESULT_OK);
  CHECK_FALSE(fixture.ring.timed_out());
}

TEST_CASE("Ring: buffers that were cleared are not touched", "[client]") {
  Fixture fixture;
  fixture.table.ClearParameters();
  CHECK(fixture.In(0, 0, 8) == v1::RING_RESULT_NO_BUFFER);
}

TEST_CASE("Ring: a thread started later goes on after the last completed command", "[client]") {
  Fixture fixture;
  CHECK(fixture.In(0, 0, 8) == v1::RING_RESULT_OK);
  fixture.executor.reset();
  fixture.executor = *RingExecutor::Start(fixture.ring.Descriptors(), &fixture.table);
  CHECK(fixture.In(0, 0, 8) == v1::RING_RESULT_OK);
}

TEST_CASE("Ring: a control page that promises more than it holds is refused", "[client]") {
  testing::FakeRing ring(2, 64, 2);
  TensorTable table(1);
  ring.header()->slot_bytes = 65;
  CHECK_FALSE(RingExecutor::Start(ring.Descriptors(), &table).ok());
  ring.header()->slot_bytes = 64;
  ring.header()->max_runs = UINT32_MAX;
  CHECK_FALSE(RingExecutor::Start(ring.Descriptors(), &table).ok());
  ring.header()->max_runs = 2;
  ring.header()->version = 2;
  CHECK(RingExecutor::Start(ring.Descriptors(), &table).status().code() ==
        absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace moment::client
