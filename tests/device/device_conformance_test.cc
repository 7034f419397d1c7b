// What every Device promises, on each device that DevicesUnderTest of this program gives.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "tests/device/chunk_model.h"
#include "tests/device/device_under_test.h"
#include "tests/support/catch.h"

namespace moment::device {
namespace {

uint64_t Seed() {
  const char* text = std::getenv("MOMENT_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 4242;
}

// Runs `op` on the device, in place or not, and compares with the plain definition.
bool AsExpected(const DeviceUnderTest& under_test, Device& device, const ChunkShape& shape,
                ChunkOp op, std::mt19937_64& random, bool in_place, bool moments_zero,
                bool mains_fresh = false) {
  ChunkBytes bytes = RandomBytes(random, shape);
  ChunkBytes expected = Expected(under_test, shape, op, moments_zero, bytes, mains_fresh);
  ChunkBytes in = bytes;
  const ChunkBytes in_before = in;
  if (!in_place) {
    for (int s = 0; s < kSegmentCount; ++s) {
      std::fill(bytes.segments[s].begin(), bytes.segments[s].end(), std::byte{0xee});
      if (OnlyReads(op)) {
        expected.segments[s] = bytes.segments[s];
      }
    }
  }
  ChunkCall call(shape, under_test.profile, op, bytes, in_place ? nullptr : &in);
  call.work.moments_zero = moments_zero;
  call.work.mains_fresh = mains_fresh;
  device.Submit(&call.work);
  return call.Wait().ok() && bytes == expected && in == in_before && call.work.seconds >= 0;
}

#define FOR_EACH_DEVICE(under_test, device)                    \
  for (const DeviceUnderTest& under_test : DevicesUnderTest()) \
    if (const std::shared_ptr<Device> device = under_test.make(); true)

TEST_CASE("Device: every operation gives the plain definition's bits", "[device]") {
  const uint64_t seed = Seed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  FOR_EACH_DEVICE(under_test, device) {
    INFO(under_test.name);
    for (ChunkOp op : {ChunkOp::kAdam, ChunkOp::kRefresh, ChunkOp::kMaterialize, ChunkOp::kRead,
                       ChunkOp::kWrite}) {
      for (uint64_t largest_run : {3u, 40u, 500u}) {
        for (int variant = 0; variant < 4; ++variant) {
          const ChunkShape shape = RandomShape(random, 3000, largest_run);
          INFO("op " << static_cast<int>(op) << " runs up to " << largest_run << " variant "
                     << variant);
          REQUIRE(AsExpected(under_test, *device, shape, op, random, variant % 2 == 0,
                             variant / 2 == 0));
        }
      }
    }
  }
}

TEST_CASE(
    "Device: a refresh of fresh mains takes every parameter, any other keeps what rounds to it",
    "[device]") {
  const uint64_t seed = Seed() + 7;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  FOR_EACH_DEVICE(under_test, device) {
    INFO(under_test.name);
    const ChunkShape shape = RandomShape(random, 3000, 500);
    for (const bool fresh : {false, true}) {
      REQUIRE(
          AsExpected(under_test, *device, shape, ChunkOp::kRefresh, random, true, false, fresh));
    }
  }
}

TEST_CASE("Device: a chunk of many pieces with runs across their bounds", "[device]") {
  const uint64_t seed = Seed() + 1;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  FOR_EACH_DEVICE(under_test, device) {
    INFO(under_test.name);
    const ChunkShape shape = RandomShape(random, 300001, 90000);
    REQUIRE(AsExpected(under_test, *device, shape, ChunkOp::kAdam, random, true, false));
    REQUIRE(AsExpected(under_test, *device, shape, ChunkOp::kAdam, random, false, false));
  }
}

// One run over the whole chunk.
ChunkShape WholeRun(uint64_t elements) {
  ChunkShape shape;
  shape.elements = elements;
  shape.hyperparameters = {{1e-3, 0.9, 0.999, 1e-8, 0.01}};
  Run run;
  run.count = elements;
  run.t = 12;
  shape.runs = {run};
  return shape;
}

// The elements [first, first + count) of `whole`, a chunk of one fp32 run.
ChunkBytes Slice(const ChunkBytes& whole, uint64_t first, uint64_t count) {
  const auto cut = [&](const std::vector<std::byte>& bytes) {
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(first * 4);
    return std::vector<std::byte>(begin, begin + static_cast<std::ptrdiff_t>(count * 4));
  };
  ChunkBytes slice;
  for (int s = 0; s < kSegmentCount; ++s) {
    slice.segments[s] = cut(whole.segments[s]);
  }
  slice.gradients = {cut(whole.gradients[0])};
  slice.parameters = {cut(whole.parameters[0])};
  return slice;
}

TEST_CASE("Device: one chunk and seven chunks of the same parameters have the same bits",
          "[device]") {
  const uint64_t seed = Seed() + 2;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  constexpr uint64_t kElements = 70007;
  FOR_EACH_DEVICE(under_test, device) {
    INFO(under_test.name);
    const ChunkShape shape = WholeRun(kElements);
    ChunkBytes whole = RandomBytes(random, shape);
    const ChunkBytes before = whole;
    ChunkCall call(shape, under_test.profile, ChunkOp::kAdam, whole);
    device->Submit(&call.work);
    REQUIRE(call.Wait().ok());
    for (uint64_t part = 0; part < 7; ++part) {
      const uint64_t first = part * kElements / 7;
      const uint64_t count = (part + 1) * kElements / 7 - first;
      ChunkBytes bytes = Slice(before, first, count);
      const ChunkShape part_shape = WholeRun(count);
      ChunkCall part_call(part_shape, under_test.profile, ChunkOp::kAdam, bytes);
      device->Submit(&part_call.work);
      REQUIRE(part_call.Wait().ok());
      REQUIRE(bytes == Slice(whole, first, count));
    }
  }
}

TEST_CASE("Device: many more chunks than it works on at a time all end, once", "[device]") {
  const uint64_t seed = Seed() + 3;
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  constexpr size_t kChunks = 40;
  FOR_EACH_DEVICE(under_test, device) {
    INFO(under_test.name);
    std::vector<ChunkShape> shapes;
    std::vector<ChunkBytes> bytes;
    std::vector<ChunkBytes> expected;
    for (size_t i = 0; i < kChunks; ++i) {
      shapes.push_back(RandomShape(random, 1 + random() % 900, 100));
      bytes.push_back(RandomBytes(random, shapes[i]));
      expected.push_back(Expected(under_test, shapes[i], ChunkOp::kAdam, false, bytes[i]));
    }
    std::vector<std::unique_ptr<ChunkCall>> calls;
    for (size_t i = 0; i < kChunks; ++i) {
      calls.push_back(
          std::make_unique<ChunkCall>(shapes[i], under_test.profile, ChunkOp::kAdam, bytes[i]));
      device->Submit(&calls.back()->work);
    }
    for (size_t i = 0; i < kChunks; ++i) {
      REQUIRE(calls[i]->Wait().ok());
      REQUIRE(calls[i]->times_done() == 1);
      REQUIRE(bytes[i] == expected[i]);
    }
  }
}

TEST_CASE("Device: its end waits for what was submitted", "[device]") {
  std::mt19937_64 random(Seed() + 4);
  const ChunkShape shape = RandomShape(random, 5000, 300);
  for (const DeviceUnderTest& under_test : DevicesUnderTest()) {
    INFO(under_test.name);
    std::vector<ChunkBytes> bytes(8, RandomBytes(random, shape));
    std::vector<std::unique_ptr<ChunkCall>> calls;
    {
      const std::shared_ptr<Device> device = under_test.make();
      for (ChunkBytes& chunk : bytes) {
        calls.push_back(
            std::make_unique<ChunkCall>(shape, under_test.profile, ChunkOp::kAdam, chunk));
        device->Submit(&calls.back()->work);
      }
    }
    for (auto& call : calls) {
      CHECK(call->times_done() == 1);
    }
  }
}

TEST_CASE("Device: a chunk without elements ends", "[device]") {
  FOR_EACH_DEVICE(under_test, device) {
    INFO(under_test.name);
    std::vector<std::byte> memory(4096);
    ChunkShape shape;
    shape.runs.resize(2);  // empty ones
    ChunkBytes bytes;
    bytes.gradients.resize(2);
    bytes.parameters.resize(2);
    ChunkCall call(shape, under_test.profile, ChunkOp::kAdam, bytes);
    for (int s = 0; s < kSegmentCount; ++s) {
      call.work.in.data[s] = call.work.out.data[s] = memory.data();
    }
    device->Submit(&call.work);
    CHECK(call.Wait().ok());
  }
}

// A chunk that the test spoils before it is submitted: refused, with nothing written.
void CheckRefused(void (*spoil)(ChunkCall&)) {
  std::mt19937_64 random(Seed() + 5);
  FOR_EACH_DEVICE(under_test, device) {
    INFO(under_test.name);
    const ChunkShape shape = WholeRun(100);
    ChunkBytes bytes = RandomBytes(random, shape);
    const ChunkBytes before = bytes;
    ChunkCall call(shape, under_test.profile, ChunkOp::kAdam, bytes);
    spoil(call);
    device->Submit(&call.work);
    const absl::Status status = call.Wait();
    INFO(status.ToString());
    CHECK(absl::IsInvalidArgument(status));
    CHECK(bytes == before);
    ChunkCall next(shape, under_test.profile, ChunkOp::kAdam, bytes);
    device->Submit(&next.work);
    CHECK(next.Wait().ok());
  }
}

TEST_CASE("Device: refuses a run beyond its chunk", "[device]") {
  CheckRefused([](ChunkCall& call) { call.runs[0].first = 1; });
  CheckRefused([](ChunkCall& call) { call.runs[0].first = UINT64_MAX; });
}

TEST_CASE("Device: refuses a run without a gradient or a parameter", "[device]") {
  CheckRefused([](ChunkCall& call) { call.runs[0].gradient = nullptr; });
  CheckRefused([](ChunkCall& call) { call.runs[0].parameter = nullptr; });
}

TEST_CASE("Device: refuses a step of zero and hyperparameters that are not there", "[device]") {
  CheckRefused([](ChunkCall& call) { call.runs[0].t = 0; });
  CheckRefused([](ChunkCall& call) { call.runs[0].hyperparameters = 1; });
}

TEST_CASE("Device: refuses a chunk without memory", "[device]") {
  CheckRefused([](ChunkCall& call) { call.work.out.data[kExpAvg] = nullptr; });
  CheckRefused([](ChunkCall& call) { call.work.in.data[kMain] = nullptr; });
}

TEST_CASE("Device: refuses segment types that it does not compute with", "[device]") {
  CheckRefused([](ChunkCall& call) { call.work.segment_types[kExpAvgSq] = DataType::kFloat16; });
  CheckRefused([](ChunkCall& call) { call.work.segment_types[kMain] = DataType::kBFloat16; });
}

TEST_CASE("Device: computes its profile and refuses one that it does not", "[device]") {
  FOR_EACH_DEVICE(under_test, device) {
    INFO(under_test.name);
    CHECK(device->Supports(under_test.profile));
    CHECK(device->Supports(device->default_profile()));
    CHECK(device->concurrency() >= 1);
    CHECK_FALSE(device->name().empty());
    CHECK_FALSE(device->Describe().empty());
    for (int i = 0; i <= static_cast<int>(Profile::kTorchCpuIeee); ++i) {
      const auto profile = static_cast<Profile>(i);
      const ChunkShape shape = WholeRun(4);
      std::mt19937_64 random(1);
      ChunkBytes bytes = RandomBytes(random, shape);
      ChunkCall call(shape, profile, ChunkOp::kAdam, bytes);
      device->Submit(&call.work);
      CHECK(call.Wait().ok() == device->Supports(profile));
    }
  }
}

}  // namespace
}  // namespace moment::device
