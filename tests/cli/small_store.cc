#include "tests/cli/small_store.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "daemon/base/memory.h"
#include "daemon/store/checksum.h"

namespace moment::cli {
namespace {

void Check(const absl::Status& status) {
  if (!status.ok()) {
    throw std::runtime_error(status.ToString());
  }
}

template <typename T>
T Value(absl::StatusOr<T> value) {
  Check(value.status());
  return *std::move(value);
}

v1::Tensor TensorOf(const std::string& name, std::vector<uint64_t> shape) {
  v1::Tensor tensor;
  tensor.set_name(name);
  tensor.set_parameter_type(v1::DATA_TYPE_BFLOAT16);
  tensor.mutable_shape()->Add(shape.begin(), shape.end());
  return tensor;
}

// Two tensors in two buckets of up to 400,000 elements: segments of more than one checksum unit.
store::OpenParameters ParametersOf(const v1::StoreName& name) {
  store::OpenParameters parameters;
  parameters.name = name;
  parameters.members.emplace_back().set_name("opt0_0");
  parameters.tensors = {TensorOf("wte.weight", {600, 700}), TensorOf("ln.bias", {701})};
  parameters.resume = v1::RESUME_AUTO;
  parameters.bucket_elements = 400'000;
  parameters.blob_limit_bytes = 4096;
  return parameters;
}

void WriteSegment(io::IoEngine& engine, store::BucketImage& image,
                  const store::SegmentGeometry& segment, uint64_t seed) {
  if (segment.length_bytes == 0) {
    return;
  }
  const base::AlignedBuffer buffer = Value(base::AlignedBuffer::Allocate(segment.length_bytes));
  uint64_t state = seed;
  for (std::byte& byte : buffer.span()) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<std::byte>(state >> 56);
  }
  Check(io::Write(engine, image.file(), segment.offset, buffer.data(), segment.length_bytes));
  for (uint64_t unit = 0; unit < segment.units; ++unit) {
    const uint64_t begin = unit * store::kChecksumUnitBytes;
    const uint64_t length = std::min(store::kChecksumUnitBytes, segment.length_bytes - begin);
    image.set_checksum(segment.first_checksum + unit,
                       store::Xxh64(std::span<const std::byte>(buffer.data() + begin, length)));
  }
}

}  // namespace

SmallState::SmallState(std::string state_directory)
    : state_directory_(std::move(state_directory)), files_(io::CreatePosixFileSystem()) {
  std::filesystem::create_directories(state_directory_);
  std::ofstream(state_directory_ + "/LOCK");
  engine_ = Value(io::CreateEngine(
                      {.kind = io::EngineKind::kThreads, .depth = 4, .threads = 2, .held_fds = {}}))
                .engine;
}

std::string SmallState::MakeStore(const v1::StoreName& name, uint64_t steps) {
  store::Environment environment;
  environment.files = files_.get();
  environment.engine = engine_.get();
  environment.state_directory = state_directory_;
  const std::unique_ptr<store::Store> store =
      Value(store::Store::Open(environment, ParametersOf(name)));
  for (uint64_t sequence = 0; sequence <= steps; ++sequence) {
    if (sequence > 0) {
      Check(store->Drop(sequence));
    }
    Change(*store, sequence);
  }
  return store->directory();
}

void SmallState::Change(store::Store& store, uint64_t sequence) {
  const std::shared_ptr<const store::Layout> layout = store.layout();
  const size_t buckets = layout->buckets().size();
  const std::shared_ptr<const store::State> base = store.newest();
  std::unique_ptr<store::Mutation> mutation = Value(
      store.Begin(base.get(), std::vector<bool>(buckets, true), std::vector<bool>(buckets, false)));
  for (size_t bucket = 0; bucket < buckets; ++bucket) {
    for (const store::SegmentGeometry& segment : layout->buckets()[bucket].segments) {
      WriteSegment(*engine_, *mutation->images()[bucket], segment,
                   mutation->id() * 1000 + bucket * 10 + segment.first_checksum);
    }
  }
  store::State state;
  state.id = mutation->id();
  state.sequence = sequence;
  state.due = true;
  state.step_id = std::string(16, static_cast<char>(sequence));
  state.layout = layout;
  state.images = mutation->images();
  state.t.assign(static_cast<size_t>(layout->proto().tensors_size()), sequence);
  state.blob = "blob";
  Check(store.Commit(std::move(mutation), state));
}

}  // namespace moment::cli
