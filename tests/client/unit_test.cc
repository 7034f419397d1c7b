#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/src/errors.h"
#include "client/src/position.h"
#include "client/src/requests.h"
#include "client/src/socket_path.h"
#include "client/src/tensor_map.h"
#include "proto/moment/v1/ring.h"
#include "tests/support/catch.h"

namespace moment::client {
namespace {

TEST_CASE("Socket path: the argument comes before the environment, then the default", "[client]") {
  ::setenv("MOMENTD_SOCKET", "/tmp/environment.sock", 1);
  CHECK(*ResolveSocketPath("/tmp/argument.sock") == "/tmp/argument.sock");
  CHECK(*ResolveSocketPath("") == "/tmp/environment.sock");
  ::unsetenv("MOMENTD_SOCKET");
  CHECK(*ResolveSocketPath("") == "/run/momentd/momentd.sock");
}

TEST_CASE("Socket path: unix: and unix:// are taken off, other schemes refused", "[client]") {
  CHECK(*ResolveSocketPath("unix:/tmp/a.sock") == "/tmp/a.sock");
  CHECK(*ResolveSocketPath("unix:///tmp/a.sock") == "/tmp/a.sock");
  CHECK(*ResolveSocketPath("unix:a.sock") == "a.sock");
  CHECK(ResolveSocketPath("dns:///localhost:80").status().code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(ResolveSocketPath("unix:").status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Socket path: more than 107 bytes are refused before gRPC is asked", "[client]") {
  const std::string directory = "/tmp/" + std::string(100, 'x') + "/";
  for (const char* prefix : {"", "unix:", "unix://"}) {
    const auto path = ResolveSocketPath(prefix + directory + "momentd.sock");
    CHECK(path.status().code() == absl::StatusCode::kInvalidArgument);
    CHECK(std::string(path.status().message()).find("107") != std::string::npos);
  }
  CHECK(ResolveSocketPath("/" + std::string(kMaxSocketPathBytes - 1, 'x')).ok());
}

TEST_CASE("Socket path: a regular file in its place is named", "[client]") {
  const std::string path = "/tmp/moment-unit-" + std::to_string(::getpid());
  std::ofstream(path) << "not a socket";
  const absl::Status status = CheckSocketFile(path);
  ::unlink(path.c_str());
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(status.message()).find(path) != std::string::npos);
  CHECK(CheckSocketFile(path).ok());
}

TEST_CASE("Socket path: the descriptors' socket lies beside the daemon's", "[client]") {
  CHECK(DescriptorSocketPath("/run/momentd/momentd.sock") == "/run/momentd/fd.sock");
  CHECK(DescriptorSocketPath("momentd.sock") == "fd.sock");
}

Position At(uint64_t sequence, char id) { return {sequence, std::string(16, id)}; }

TEST_CASE("Position: the answered step or the one in flight means go on", "[client]") {
  CHECK(Compare(At(7, 'a'), At(7, 'a'), absl::nullopt) == Comparison::kSame);
  CHECK(Compare(At(7, 'a'), At(7, 'a'), At(8, 'b')) == Comparison::kSame);
  CHECK(Compare(At(8, 'b'), At(7, 'a'), At(8, 'b')) == Comparison::kSame);
}

TEST_CASE("Position: a store behind is rewound, any other is somebody else's", "[client]") {
  CHECK(Compare(At(6, 'x'), At(7, 'a'), At(8, 'b')) == Comparison::kRewound);
  CHECK(Compare(At(7, 'x'), At(7, 'a'), absl::nullopt) == Comparison::kDifferent);
  CHECK(Compare(At(8, 'x'), At(7, 'a'), At(8, 'b')) == Comparison::kDifferent);
  CHECK(Compare(At(8, 'b'), At(7, 'a'), absl::nullopt) == Comparison::kDifferent);
  CHECK(Compare(At(9, 'b'), At(7, 'a'), At(8, 'b')) == Comparison::kDifferent);
}

TensorMap Reversed(size_t count) {
  std::vector<uint32_t> to_store(count);
  for (size_t i = 0; i < count; ++i) {
    to_store[i] = static_cast<uint32_t>(count - 1 - i);
  }
  return TensorMap(std::vector<TensorMap::Tensor>(count, {4, MOMENT_TYPE_FLOAT32}), to_store);
}

TEST_CASE("Tensor map: runs are translated both ways", "[client]") {
  const TensorMap map = Reversed(6);
  const moment_run runs[] = {{0, 2}, {4, 1}};
  const auto marked = map.Mark(runs, "test");
  REQUIRE(marked.ok());
  const v1::TensorSet set = map.ToStore(*marked);
  REQUIRE(set.runs_size() == 2);
  CHECK(set.runs(0).first() == 1);
  CHECK(set.runs(0).count() == 1);
  CHECK(set.runs(1).first() == 4);
  CHECK(set.runs(1).count() == 2);
  const std::vector<moment_run> back = map.FromStore(set);
  REQUIRE(back.size() == 2);
  CHECK(back[0].first == 0);
  CHECK(back[0].count == 2);
  CHECK(back[1].first == 4);
}

TEST_CASE("Tensor map: a run past the end is refused", "[client]") {
  const TensorMap map = Reversed(3);
  for (const moment_run run : {moment_run{3, 1}, moment_run{0, 4}, moment_run{2, UINT32_MAX}}) {
    CHECK(map.Mark({&run, 1}, "test").status().code() == absl::StatusCode::kInvalidArgument);
  }
  const moment_run empty = {3, 0};
  CHECK(map.Mark({&empty, 1}, "test").ok());
}

moment_step_options OneGroup(const moment_group& group, const void* const* gradients) {
  moment_step_options options = MOMENT_STEP_OPTIONS_INIT;
  options.groups = &group;
  options.group_count = 1;
  options.gradients = gradients;
  return options;
}

TEST_CASE("Step plan: a missing gradient sits out", "[client]") {
  const TensorMap map = Reversed(3);
  const moment_run all = {0, 3};
  const moment_group group = {0.1, 0.9, 0.999, 1e-8, 0, MOMENT_MODE_ADAMW, 0, 0, 1.0f, &all, 1};
  const float gradient[4] = {};
  const void* const gradients[] = {gradient, nullptr, gradient};
  const auto plan = MakeStepPlan(map, OneGroup(group, gradients));
  REQUIRE(plan.ok());
  REQUIRE(plan->request.participants().runs_size() == 2);
  CHECK(plan->gradients[2].length_bytes == 16);
  CHECK(plan->gradients[1].data == nullptr);
  const void* const everyone[] = {gradient, gradient, gradient};
  CHECK_FALSE(MakeStepPlan(map, OneGroup(group, everyone))->request.has_participants());
  const void* const nobody[] = {nullptr, nullptr, nullptr};
  const auto none = MakeStepPlan(map, OneGroup(group, nobody));
  CHECK(none->request.has_participants());
  CHECK(none->request.participants().runs_size() == 0);
}

TEST_CASE("Step plan: a tensor in two groups, or taking part without a gradient, is refused",
          "[client]") {
  const TensorMap map = Reversed(2);
  const moment_run all = {0, 2};
  const moment_run twice[] = {{0, 1}, {0, 2}};
  const moment_group groups[] = {
      {0.1, 0.9, 0.999, 1e-8, 0, MOMENT_MODE_ADAMW, 0, 0, 1.0f, &twice[0], 1},
      {0.1, 0.9, 0.999, 1e-8, 0, MOMENT_MODE_ADAMW, 0, 0, 1.0f, &twice[1], 1}};
  const void* const gradients[] = {nullptr, nullptr};
  moment_step_options options = OneGroup(groups[0], gradients);
  options.group_count = 2;
  CHECK(MakeStepPlan(map, options).status().code() == absl::StatusCode::kInvalidArgument);
  options = OneGroup(groups[1], gradients);
  options.participants = &all;
  options.participant_count = 1;
  CHECK(MakeStepPlan(map, options).status().code() == absl::StatusCode::kInvalidArgument);
}

// Segments of tensors by name, as a request lists them.
std::string Listed(const SegmentPlan& plan) {
  std::string text;
  for (const v1::SegmentBuffers& buffers : plan.request) {
    absl::StrAppend(&text, buffers.segment(), "/", v1::DataType_Name(buffers.type()),
                    buffers.zeros() ? "/zeros" : "");
    for (const v1::TensorRun& run : buffers.tensors().runs()) {
      absl::StrAppend(&text, " ", run.first(), "+", run.count());
    }
    absl::StrAppend(&text, ";");
  }
  return text;
}

TEST_CASE("Segment plan: buffers that are alike stand together, by store index", "[client]") {
  const TensorMap map = Reversed(4);
  float memory[8] = {};
  const moment_buffer buffers[] = {{0, MOMENT_SEGMENT_MAIN, memory, MOMENT_TYPE_DEFAULT},
                                   {2, MOMENT_SEGMENT_MAIN, memory, MOMENT_TYPE_FLOAT32},
                                   {1, MOMENT_SEGMENT_MAIN, memory, MOMENT_TYPE_FLOAT32},
                                   {1, MOMENT_SEGMENT_EXP_AVG, memory + 4, MOMENT_TYPE_BFLOAT16},
                                   {3, MOMENT_SEGMENT_EXP_AVG, nullptr, MOMENT_TYPE_BFLOAT16}};
  const auto plan = MakeSegmentPlan(map, buffers, true);
  REQUIRE(plan.ok());
  CHECK(Listed(*plan) ==
        "main/DATA_TYPE_FLOAT32 1+3;exp_avg/DATA_TYPE_BFLOAT16 2+1;"
        "exp_avg/DATA_TYPE_BFLOAT16/zeros 0+1;");
  CHECK(plan->mains == std::vector<bool>{true, true, true, false});
  REQUIRE(plan->buffers.size() == 4);  // zeros have none
  CHECK(plan->buffers[0].tensor == 3);
  CHECK(plan->buffers[0].buffer.length_bytes == 16);
  CHECK(plan->buffers[3].segment == v1::RING_SEGMENT_EXP_AVG);
  CHECK(plan->buffers[3].buffer.data == reinterpret_cast<std::byte*>(memory + 4));
  CHECK(plan->buffers[3].buffer.length_bytes == 8);
}

TEST_CASE("Segment plan: what only the client can see is refused naming buffer and tensor",
          "[client]") {
  const TensorMap map = Reversed(2);
  float memory[4] = {};
  const moment_buffer good = {1, MOMENT_SEGMENT_EXP_AVG, memory, MOMENT_TYPE_FLOAT32};
  const auto refused = [&](moment_buffer bad, bool writes, const char* message) {
    const moment_buffer both[] = {good, bad};
    const absl::Status status = MakeSegmentPlan(map, both, writes).status();
    INFO(status.ToString());
    return status.code() == absl::StatusCode::kInvalidArgument &&
           status.message().find(message) != absl::string_view::npos &&
           status.message().find("buffer 1") != absl::string_view::npos;
  };
  CHECK(refused({2, MOMENT_SEGMENT_MAIN, memory, MOMENT_TYPE_FLOAT32}, true, "tensor 2"));
  CHECK(refused({0, static_cast<moment_segment>(3), memory, MOMENT_TYPE_FLOAT32}, true,
                "no segment 3"));
  CHECK(refused({0, MOMENT_SEGMENT_MAIN, memory, MOMENT_TYPE_FLOAT8_E5M2}, false, "type 5"));
  CHECK(refused(good, false, "exp_avg of tensor 1 is listed twice"));
  CHECK(refused({0, MOMENT_SEGMENT_MAIN, nullptr, MOMENT_TYPE_FLOAT32}, false,
                "main of tensor 0 has no buffer"));
  CHECK(MakeSegmentPlan(map, {&good, 1}, false).ok());
}

TEST_CASE("Segment plan: equal t stand together, each tensor once", "[client]") {
  const TensorMap map = Reversed(3);
  const moment_tensor_steps steps[] = {{0, 7}, {2, 9}, {1, 7}};
  const auto request = MakeSteps(map, steps);
  REQUIRE(request.ok());
  REQUIRE(request->size() == 2);
  for (const v1::ExpectedSteps& of : *request) {
    REQUIRE(of.tensors().runs_size() == 1);
    CHECK(of.tensors().runs(0).first() == (of.t() == 7 ? 1 : 0));
    CHECK(of.tensors().runs(0).count() == (of.t() == 7 ? 2 : 1));
  }
  const moment_tensor_steps twice[] = {{1, 7}, {1, 7}};
  CHECK(MakeSteps(map, twice).status().code() == absl::StatusCode::kInvalidArgument);
  const moment_tensor_steps beyond[] = {{3, 7}};
  CHECK(MakeSteps(map, beyond).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Open request: bad arguments are named before anything is sent", "[client]") {
  moment_open_options options = MOMENT_OPEN_OPTIONS_INIT;
  CHECK(MakeOpenRequest(options).status().code() == absl::StatusCode::kInvalidArgument);
  options.job = "job";
  const uint64_t huge[] = {uint64_t{1} << 40, uint64_t{1} << 40};
  moment_tensor tensor = {"w", 0, 2, huge, MOMENT_TYPE_FLOAT32, nullptr};
  options.tensors = &tensor;
  options.tensor_count = 1;
  CHECK(MakeOpenRequest(options).status().code() == absl::StatusCode::kInvalidArgument);
  const uint64_t empty[] = {uint64_t{1} << 40, 0};
  tensor.shape = empty;
  CHECK(MakeOpenRequest(options).ok());
  tensor.member = 1;
  CHECK(MakeOpenRequest(options).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Open request: a whole tensor's shard is its whole box under its own name", "[client]") {
  moment_open_options options = MOMENT_OPEN_OPTIONS_INIT;
  options.job = "job";
  const uint64_t shape[] = {3, 5};
  const moment_tensor tensor = {"w", 0, 2, shape, MOMENT_TYPE_BFLOAT16, nullptr};
  options.tensors = &tensor;
  options.tensor_count = 1;
  const auto request = MakeOpenRequest(options);
  REQUIRE(request.ok());
  const v1::ShardPiece& piece = request->tensors(0).shard().pieces(0);
  CHECK(piece.key() == "w");
  CHECK(piece.extent(1) == 5);
  CHECK(piece.flat_count() == 15);
  CHECK(request->commit_every() == 1);
  CHECK(request->members(0).name() == "opt0_0");
  options.positional = 1;
  CHECK_FALSE(MakeOpenRequest(options)->tensors(0).has_shard());
}

}  // namespace
}  // namespace moment::client
