// The pure parts, the pool and the scheduler.
#include <set>

#include "absl/synchronization/blocking_counter.h"
#include "daemon/device/device.h"
#include "daemon/io/simulated_disk.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/frame_pool.h"
#include "daemon/pipeline/io_scheduler.h"
#include "daemon/pipeline/part_plan.h"
#include "daemon/pipeline/residency.h"
#include "tests/support/catch.h"

namespace moment::pipeline {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;

// One bucket a member: fp32 alone, and mixed.
std::shared_ptr<const store::Layout> MakeLayout(const std::vector<uint64_t>& sizes) {
  v1::Layout layout;
  layout.set_format_version(1);
  layout.set_profile(v1::PROFILE_TORCH_CPU);
  layout.add_members()->set_name("opt0_0");
  v1::Member* mixed = layout.add_members();
  mixed->set_name("opt0_1");
  mixed->mutable_segments()->set_exp_avg(v1::DATA_TYPE_BFLOAT16);
  mixed->mutable_segments()->set_exp_avg_sq(v1::DATA_TYPE_BFLOAT16);
  for (uint32_t member = 0; member < 2; ++member) {
    v1::Bucket* bucket = layout.add_buckets();
    bucket->set_member(member);
    for (const uint64_t size : sizes) {
      v1::Tensor* tensor = layout.add_tensors();
      tensor->set_name("t" + std::to_string(layout.tensors_size()));
      tensor->set_member(member);
      tensor->add_shape(size);
      tensor->set_parameter_type(v1::DATA_TYPE_FLOAT32);
      v1::BucketSlice* slice = bucket->add_slices();
      slice->set_tensor(static_cast<uint32_t>(layout.tensors_size()) - 1);
      slice->set_element_count(size);
    }
  }
  auto created = store::Layout::Create(std::move(layout));
  REQUIRE(created.status() == absl::OkStatus());
  return *created;
}

TEST_CASE("ChunkPlan: covers every byte of every segment once, in whole units", "[pipeline]") {
  const uint64_t chunk_bytes = GENERATE(as<uint64_t>{}, 1, 3 * kMiB, 5 * kMiB, 48 * kMiB);
  const auto layout = MakeLayout({1'000'003, 1, 2'500'000});
  const ChunkPlan plan(*layout, chunk_bytes);
  for (size_t b = 0; b < layout->buckets().size(); ++b) {
    const store::BucketGeometry& bucket = layout->buckets()[b];
    const BucketChunks& chunks = plan.buckets()[b];
    for (int s = 0; s < kSegmentCount; ++s) {
      uint64_t offset = bucket.segments[s].offset;
      uint64_t unit = bucket.segments[s].first_checksum;
      for (uint32_t c = chunks.first; c < chunks.first + chunks.count; ++c) {
        const SegmentExtent& extent = plan.chunks()[c].segments[s];
        CHECK(extent.file_offset == offset);
        CHECK(extent.first_checksum == unit);
        CHECK(extent.length_bytes % 4096 == 0);
        const bool last = c + 1 == chunks.first + chunks.count;
        CHECK((last || extent.length_bytes % store::kChecksumUnitBytes == 0));
        offset += extent.length_bytes;
        unit += extent.units;
      }
      CHECK(offset == bucket.segments[s].offset + bucket.segments[s].length_bytes);
      CHECK(unit == bucket.segments[s].first_checksum + bucket.segments[s].units);
    }
  }
  for (const Chunk& chunk : plan.chunks()) {
    CHECK(chunk.bytes() <= std::max<uint64_t>(chunk_bytes, 4 * kMiB));
    CHECK(chunk.bytes() <= plan.frame_bytes());
    uint64_t element = 0;
    for (const ChunkRun& run : plan.runs(chunk)) {
      CHECK(run.chunk_first == element);
      element += run.count;
    }
    CHECK(element == chunk.elements);
  }
}

TEST_CASE("ChunkPlan: runs follow a tensor from chunk to chunk", "[pipeline]") {
  const auto layout = MakeLayout({300'000, 300'000});
  const ChunkPlan plan(*layout, 3 * kMiB);  // 262,144 elements of fp32
  const auto second = plan.runs(plan.chunks()[1]);
  REQUIRE(second.size() == 2);
  CHECK(second[0].tensor == 0);
  CHECK(second[0].tensor_first == 262'144);
  CHECK(second[0].count == 300'000 - 262'144);
  CHECK(second[1].tensor == 1);
  CHECK(second[1].tensor_first == 0);
  CHECK(second[1].chunk_first == 300'000 - 262'144);
}

TEST_CASE("PartPlan: every part fits a slot, aligned, and together they are the chunk",
          "[pipeline]") {
  const auto layout = MakeLayout({1'000'003, 1, 7, 4095, 900'000});
  const ChunkPlan plan(*layout, 12 * kMiB);
  std::vector<TensorTypes> types(10);
  types[2].gradient = device::DataType::kBFloat16;
  types[4].parameter = device::DataType::kFloat16;
  const uint64_t slot_bytes = GENERATE(as<uint64_t>{}, 70'000, 500'000, 64'000'000);
  const auto parts = PartPlan::Create(plan, ArraysOf(types), slot_bytes);
  REQUIRE(parts.status() == absl::OkStatus());
  for (uint32_t c = 0; c < plan.chunks().size(); ++c) {
    uint64_t element = 0;
    for (const Part& part : parts->parts(c)) {
      CHECK(part.first == element);
      CHECK(part.first % kPartAlignmentElements == 0);
      element += part.count;
      uint64_t bytes = 0;
      for (const ChunkRun& run :
           plan.runs(plan.chunks()[c]).subspan(part.first_run, part.run_count)) {
        const uint64_t begin = std::max(run.chunk_first, part.first);
        const uint64_t end = std::min(run.chunk_first + run.count, part.first + part.count);
        REQUIRE(begin < end);
        bytes += base::RoundUp((end - begin) * SizeBytes(types[run.tensor].gradient), 16) +
                 base::RoundUp((end - begin) * SizeBytes(types[run.tensor].parameter), 16);
      }
      CHECK(bytes <= slot_bytes);
    }
    CHECK(element == plan.chunks()[c].elements);
  }
  CHECK(PartPlan::Create(plan, ArraysOf(types), 4096).status().code() ==
        absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Residency: what fits stays, the rest has a window", "[pipeline]") {
  CHECK(PlanResidency(4, 100, 1).resident == 0);
  CHECK(PlanResidency(4, 100, 1).window == 4);
  CHECK(PlanResidency(56, 100, 1).resident == 50);
  CHECK(PlanResidency(106, 100, 1).resident == 100);
  CHECK(PlanResidency(106, 100, 2).resident == 50);
  CHECK(PlanResidency(200, 100, 2).resident == 100);
  CHECK(PlanResidency(WantedFrames(1, 1), 1, 1).resident == 1);
  CHECK(PlanResidency(WantedFrames(30, 1), 30, 1).resident == 30);
  CHECK(PlanResidency(0, 0, 1).resident == 0);
}

TEST_CASE("FramePool: keeps to its budget and reuses what comes back", "[pipeline]") {
  FramePool pool(10 * kMiB, 4 * kMiB);
  auto grant = pool.Open({2 * kMiB, 2, 100, nullptr});
  REQUIRE(grant.ok());
  CHECK((*grant)->allowed() == 5);
  std::set<std::byte*> frames;
  while (std::byte* frame = (*grant)->Take()) {
    CHECK(frames.insert(frame).second);
  }
  CHECK(frames.size() == 5);
  CHECK(pool.Status().allocated_bytes() == 10 * kMiB);
  (*grant)->Give(*frames.begin());
  CHECK((*grant)->Take() == *frames.begin());
  for (std::byte* frame : frames) {
    (*grant)->Give(frame);
  }
  grant->reset();
  CHECK(pool.Open({4 * kMiB, 2, 2, nullptr}).ok());
}

TEST_CASE("FramePool: minima beyond the budget are refused by name", "[pipeline]") {
  FramePool pool(10 * kMiB, 10 * kMiB);
  auto first = pool.Open({2 * kMiB, 3, 5, nullptr});
  REQUIRE(first.ok());
  const auto second = pool.Open({2 * kMiB, 3, 5, nullptr});
  CHECK(second.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(second.status().message()), Catch::Matchers::Contains("host_memory"));
  CHECK((*first)->allowed() == 5);
}

// A device that keeps account of what is registered with it, and refuses beyond a limit.
class RegisteringDevice : public device::Device {
 public:
  explicit RegisteringDevice(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  const std::string& name() const override { return name_; }
  std::string Describe() const override { return name_; }
  bool Supports(device::Profile) const override { return true; }
  device::Profile default_profile() const override { return device::Profile::kTorchCuda; }
  int concurrency() const override { return 1; }
  void Submit(device::ChunkWork*) override {}

  absl::Status RegisterMemory(std::span<std::byte> memory) override {
    if (registered_bytes_ + memory.size() > limit_bytes_) {
      return absl::InternalError("cannot pin");
    }
    registered_bytes_ += memory.size();
    return absl::OkStatus();
  }
  void UnregisterMemory(std::span<std::byte> memory) override {
    registered_bytes_ -= memory.size();
  }

  uint64_t registered_bytes() const { return registered_bytes_; }

 private:
  const std::string name_ = "GPU-1";
  const uint64_t limit_bytes_;
  uint64_t registered_bytes_ = 0;
};

TEST_CASE("FramePool: its slabs are registered with the devices while it lives", "[pipeline]") {
  RegisteringDevice one(100 * kMiB);
  RegisteringDevice two(100 * kMiB);
  {
    FramePool pool(10 * kMiB, 4 * kMiB, {&one, &two});
    auto grant = pool.Open({2 * kMiB, 5, 5, nullptr});
    REQUIRE(grant.ok());
    CHECK(one.registered_bytes() == 10 * kMiB);
    CHECK(two.registered_bytes() == 10 * kMiB);
  }
  CHECK(one.registered_bytes() == 0);
  CHECK(two.registered_bytes() == 0);
}

TEST_CASE("FramePool: memory that a device refuses is not used, and the device is named",
          "[pipeline]") {
  RegisteringDevice willing(100 * kMiB);
  RegisteringDevice full(4 * kMiB);
  FramePool pool(10 * kMiB, 4 * kMiB, {&willing, &full});
  const auto grant = pool.Open({2 * kMiB, 5, 5, nullptr});
  CHECK(grant.status().code() == absl::StatusCode::kResourceExhausted);
  CHECK_THAT(std::string(grant.status().message()), Catch::Matchers::Contains("GPU-1: cannot pin"));
  CHECK(willing.registered_bytes() == 4 * kMiB);
  CHECK(pool.Open({2 * kMiB, 2, 2, nullptr}).ok());
}

TEST_CASE("FramePool: a store that comes gets its share of what others held", "[pipeline]") {
  FramePool pool(10 * kMiB, 10 * kMiB);
  std::vector<std::byte*> held;
  std::unique_ptr<FrameGrant> first;
  std::atomic<bool> told{false};
  first = *pool.Open({1 * kMiB, 2, 20, [&] { told = true; }});
  while (std::byte* frame = first->Take()) {
    held.push_back(frame);
  }
  CHECK(held.size() == 10);
  told = false;
  std::unique_ptr<FrameGrant> second;
  std::thread opener([&] { second = *pool.Open({1 * kMiB, 4, 4, nullptr}); });
  while (!told) {
    std::this_thread::yield();
  }
  CHECK(first->allowed() == 6);
  for (int i = 0; i < 4; ++i) {
    first->Give(held.back());
    held.pop_back();
  }
  opener.join();
  CHECK(first->Take() == nullptr);
  second.reset();
  CHECK(first->allowed() == 10);
  for (std::byte* frame : held) {
    first->Give(frame);
  }
}

// Records the order in which an engine is given transfers, and completes them when told.
class RecordingEngine : public io::IoEngine {
 public:
  void Submit(io::Transfer* transfer) override { waiting.push_back(transfer); }
  const char* name() const override { return "recording"; }
  uint64_t OldestTransferNs() const override { return 0; }
  io::Transfer* CompleteOne(absl::Status status = absl::OkStatus()) {
    io::Transfer* transfer = waiting.front();
    waiting.erase(waiting.begin());
    order.push_back(transfer->offset);
    transfer->done(transfer, std::move(status));
    return transfer;
  }
  void CompleteAll() {
    while (!waiting.empty()) {
      CompleteOne();
    }
  }
  std::vector<io::Transfer*> waiting;
  std::vector<uint64_t> order;
};

struct Tracked : IoRequest {
  explicit Tracked(uint64_t at, uint64_t bytes = IoScheduler::kPieceBytes) {
    offset = at;
    length = bytes;
    done = [](IoRequest* self) noexcept { ++static_cast<Tracked*>(self)->completions; };
  }
  int completions = 0;
};

TEST_CASE("IoScheduler: cuts requests, keeps to its depth and counts bytes", "[pipeline]") {
  RecordingEngine engine;
  IoScheduler scheduler(engine, 2);
  IoShare* share = scheduler.OpenShare();
  Tracked request(0, 5 * IoScheduler::kPieceBytes + 4096);
  scheduler.Submit(share, &request, IoClass::kStep);
  CHECK(engine.waiting.size() == 2);
  engine.CompleteAll();
  CHECK(engine.order.size() == 6);
  CHECK(request.completions == 1);
  CHECK(request.status.ok());
  CHECK(scheduler.bytes_read() == request.length);
  CHECK(scheduler.bytes_written() == 0);
  scheduler.CloseShare(share);
}

TEST_CASE("IoScheduler: class 1 goes first, expedited requests join it", "[pipeline]") {
  RecordingEngine engine;
  IoScheduler scheduler(engine, 1);
  IoShare* share = scheduler.OpenShare();
  Tracked running(0);
  Tracked background(1);
  Tracked other(2);
  Tracked step(3);
  scheduler.Submit(share, &running, IoClass::kStep);
  scheduler.Submit(share, &background, IoClass::kBackground);
  scheduler.Submit(share, &other, IoClass::kBackground);
  scheduler.Submit(share, &step, IoClass::kStep);
  scheduler.Expedite(&other);
  engine.CompleteAll();
  CHECK(engine.order == std::vector<uint64_t>{0, 3, 2, 1});
  scheduler.CloseShare(share);
}

TEST_CASE("IoScheduler: stores share a class equally", "[pipeline]") {
  RecordingEngine engine;
  IoScheduler scheduler(engine, 1);
  IoShare* first = scheduler.OpenShare();
  IoShare* second = scheduler.OpenShare();
  Tracked large(0, 8 * IoScheduler::kPieceBytes);
  Tracked small(1000 * IoScheduler::kPieceBytes, 3 * IoScheduler::kPieceBytes);
  scheduler.Submit(first, &large, IoClass::kStep);
  engine.CompleteOne();
  engine.CompleteOne();
  scheduler.Submit(second, &small, IoClass::kStep);
  while (small.completions == 0) {
    engine.CompleteOne();
  }
  CHECK(engine.order.size() <= 9);
  CHECK(large.completions == 0);
  engine.CompleteAll();
  CHECK(large.completions == 1);
  scheduler.CloseShare(first);
  scheduler.CloseShare(second);
}

TEST_CASE("IoScheduler: an error or Cancel ends a request once, without its rest", "[pipeline]") {
  RecordingEngine engine;
  IoScheduler scheduler(engine, 1);
  IoShare* share = scheduler.OpenShare();
  Tracked failing(0, 4 * IoScheduler::kPieceBytes);
  Tracked cancelled(100 * IoScheduler::kPieceBytes, 4 * IoScheduler::kPieceBytes);
  Tracked waiting(200 * IoScheduler::kPieceBytes);
  scheduler.Submit(share, &failing, IoClass::kStep);
  scheduler.Submit(share, &cancelled, IoClass::kStep);
  scheduler.Submit(share, &waiting, IoClass::kStep);
  engine.CompleteOne(absl::InternalError("planted"));
  CHECK(failing.completions == 1);
  CHECK(failing.status.code() == absl::StatusCode::kInternal);
  scheduler.Cancel(&cancelled);
  CHECK(cancelled.completions == 0);  // a piece is under way
  scheduler.Cancel(&waiting);
  CHECK(waiting.completions == 1);
  CHECK(absl::IsCancelled(waiting.status));
  engine.CompleteAll();
  CHECK(cancelled.completions == 1);
  CHECK(absl::IsCancelled(cancelled.status));
  CHECK(engine.order.size() == 2);
  scheduler.CloseShare(share);
}

}  // namespace
}  // namespace moment::pipeline
