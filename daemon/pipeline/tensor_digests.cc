#include "daemon/pipeline/tensor_digests.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <utility>

namespace moment::pipeline {
namespace {

constexpr uint64_t kZeroBytes = 16384;  // stays in the processor's nearest cache
alignas(64) constexpr std::array<std::byte, kZeroBytes> kZeros{};

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

void UpdateWithZeros(XXH3_state_t* hash, uint64_t bytes) {
  for (uint64_t done = 0; done < bytes; done += kZeroBytes) {
    XXH3_64bits_update(hash, kZeros.data(), std::min(kZeroBytes, bytes - done));
  }
}

}  // namespace

struct TensorDigests::Running {
  Running() {
    for (auto& hash : hashes) {
      hash.reset(XXH3_createState());
      XXH3_64bits_reset(hash.get());
    }
  }
  std::unique_ptr<XXH3_state_t, FreeState> hashes[kSegmentCount];
};

TensorDigests::TensorDigests(const ChunkPlan& plan, std::vector<uint8_t> tensors,
                             std::vector<uint64_t> elements)
    : plan_(plan), tensors_(std::move(tensors)), elements_(std::move(elements)) {
  // No chunk holds the empty ones.
  for (uint32_t tensor = 0; tensor < tensors_.size(); ++tensor) {
    if (tensors_[tensor] != 0 && elements_[tensor] == 0) {
      const uint64_t of_nothing = XXH3_64bits(nullptr, 0);
      digests_.push_back({tensor, {of_nothing, of_nothing, of_nothing}});
    }
  }
}

TensorDigests::~TensorDigests() = default;

void TensorDigests::Add(const Chunk& chunk, const std::byte* data, bool moments_zero) {
  for (const ChunkRun& run : plan_.runs(chunk)) {
    if (tensors_[run.tensor] != 0) {
      AddRun(chunk, run, data, moments_zero);
    }
  }
}

void TensorDigests::AddRun(const Chunk& chunk, const ChunkRun& run, const std::byte* data,
                           bool moments_zero) {
  std::unique_ptr<Running>& running = running_[run.tensor];
  if (running == nullptr) {
    running = std::make_unique<Running>();
  }
  const device::DataType* types = plan_.types(chunk);
  for (int s = 0; s < kSegmentCount; ++s) {
    const uint64_t size = device::SizeBytes(types[s]);
    if (s != device::kMain && moments_zero) {
      UpdateWithZeros(running->hashes[s].get(), run.count * size);
    } else {
      XXH3_64bits_update(running->hashes[s].get(),
                         data + chunk.segments[s].frame_offset + run.chunk_first * size,
                         run.count * size);
    }
  }
  if (run.tensor_first + run.count < elements_[run.tensor]) {
    return;
  }
  TensorDigest& digest = digests_.emplace_back();
  digest.tensor = run.tensor;
  for (int s = 0; s < kSegmentCount; ++s) {
    digest.segments[s] = XXH3_64bits_digest(running->hashes[s].get());
  }
  running_.erase(run.tensor);
}

std::vector<TensorDigest> TensorDigests::Take() {
  std::sort(digests_.begin(), digests_.end(),
            [](const TensorDigest& a, const TensorDigest& b) { return a.tensor < b.tensor; });
  return std::exchange(digests_, {});
}

}  // namespace moment::pipeline
