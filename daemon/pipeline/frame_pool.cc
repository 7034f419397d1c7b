#include "daemon/pipeline/frame_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/errors.h"

namespace moment::pipeline {
namespace {

// The others give back between two chunks of theirs; longer than this means a stalled disk.
constexpr absl::Duration kGiveBackTimeout = absl::Seconds(20);

}  // namespace

FrameGrant::~FrameGrant() { pool_.Close(this); }

std::byte* FrameGrant::Take() {
  absl::MutexLock lock(&pool_.mutex_);
  if (held_ >= allowed()) {
    return nullptr;
  }
  std::byte* frame = pool_.Allocate(demand_.frame_bytes);
  held_ += frame == nullptr ? 0 : 1;
  return frame;
}

void FrameGrant::Give(std::byte* frame) {
  absl::MutexLock lock(&pool_.mutex_);
  pool_.Release(frame, demand_.frame_bytes);
  --held_;
}

void FrameGrant::Count(FrameState from, FrameState to) {
  pool_.counters_[static_cast<size_t>(from)].fetch_sub(1, std::memory_order_relaxed);
  pool_.counters_[static_cast<size_t>(to)].fetch_add(1, std::memory_order_relaxed);
}

FramePool::FramePool(uint64_t budget_bytes, uint64_t slab_bytes,
                     std::vector<device::Device*> devices)
    : budget_bytes_(base::RoundDown(budget_bytes, base::kIoAlignment)),
      slab_bytes_(base::RoundUp(std::max<uint64_t>(slab_bytes, 1), base::kIoAlignment)),
      devices_(std::move(devices)) {}

FramePool::~FramePool() = default;

absl::StatusOr<std::unique_ptr<FrameGrant>> FramePool::Open(FrameDemand demand) {
  std::unique_ptr<FrameGrant> grant(new FrameGrant(*this, std::move(demand)));
  MOMENT_RETURN_IF_ERROR(Admit(*grant));
  return grant;
}

absl::Status FramePool::Admit(FrameGrant& grant) {
  absl::MutexLock lock(&mutex_);
  uint64_t minimum_bytes = grant.demand_.frame_bytes * grant.demand_.minimum;
  for (const FrameGrant* other : grants_) {
    minimum_bytes += other->demand_.frame_bytes * other->demand_.minimum;
  }
  if (minimum_bytes <= budget_bytes_) {
    grants_.push_back(&grant);
    ShareOut();
    slab_error_ = absl::OkStatus();
    auto has_minimum = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return HasMinimum(grant); };
    // Memory that the system or a device refuses is not waited for.
    if (HasMinimum(grant) ||
        (slab_error_.ok() &&
         mutex_.AwaitWithTimeout(absl::Condition(&has_minimum), kGiveBackTimeout))) {
      return absl::OkStatus();
    }
    std::erase(grants_, &grant);
    ShareOut();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the frame pool of ", budget_bytes_, " bytes (host_memory) has no room for ",
      grant.demand_.minimum, " frames of ", grant.demand_.frame_bytes, " bytes beside ",
      grants_.size(), " other stores; raise host_memory or close a store",
      slab_error_.ok() ? "" : absl::StrCat(" (", slab_error_.message(), ")")));
}

bool FramePool::HasMinimum(const FrameGrant& grant) {
  std::vector<std::byte*> frames;
  while (frames.size() < grant.demand_.minimum) {
    std::byte* frame = Allocate(grant.demand_.frame_bytes);
    if (frame == nullptr) {
      break;
    }
    frames.push_back(frame);
  }
  for (std::byte* frame : frames) {
    Release(frame, grant.demand_.frame_bytes);
  }
  return frames.size() == grant.demand_.minimum;
}

void FramePool::Close(FrameGrant* grant) {
  absl::MutexLock lock(&mutex_);
  if (std::erase(grants_, grant) > 0) {
    ShareOut();
  }
}

void FramePool::ShareOut() {
  uint64_t left = budget_bytes_;
  for (const FrameGrant* grant : grants_) {
    left -= std::min(left, grant->demand_.frame_bytes * grant->demand_.minimum);
  }
  std::vector<FrameGrant*> order = grants_;
  auto extra = [](const FrameGrant* grant) {
    return (grant->demand_.wanted - std::min(grant->demand_.minimum, grant->demand_.wanted)) *
           grant->demand_.frame_bytes;
  };
  // Those who want least first: what they leave goes to the others.
  std::sort(order.begin(), order.end(),
            [&](const FrameGrant* a, const FrameGrant* b) { return extra(a) < extra(b); });
  for (size_t i = 0; i < order.size(); ++i) {
    FrameGrant* grant = order[i];
    const uint64_t share = left / (order.size() - i);
    const uint64_t bytes = std::max<uint64_t>(grant->demand_.frame_bytes, 1);
    const uint64_t frames = std::min(extra(grant), share) / bytes;
    left -= frames * bytes;
    const auto allowed = static_cast<uint32_t>(grant->demand_.minimum + frames);
    if (grant->allowed_.exchange(allowed) != allowed && grant->demand_.allowance_changed) {
      grant->demand_.allowance_changed();
    }
  }
}

std::byte* FramePool::Allocate(uint64_t bytes) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second >= bytes) {
        std::byte* data = it->first;
        const uint64_t rest = it->second - bytes;
        free_.erase(it);
        if (rest > 0) {
          free_[data + bytes] = rest;
        }
        return data;
      }
    }
    if (attempt == 0 && !AddSlab(bytes)) {
      return nullptr;
    }
  }
  return nullptr;
}

bool FramePool::AddSlab(uint64_t at_least) {
  const uint64_t left = budget_bytes_ - allocated_bytes_;
  const uint64_t bytes = std::min(left, std::max(slab_bytes_, at_least));
  if (bytes < at_least || bytes == 0) {
    return false;
  }
  auto slab = MakeSlab(bytes, devices_);
  slab_error_ = slab.status();
  if (!slab.ok()) {
    return false;
  }
  allocated_bytes_ += bytes;
  free_[slab->memory.data()] = bytes;
  slabs_.push_back(*std::move(slab));
  return true;
}

absl::StatusOr<FramePool::Slab> FramePool::MakeSlab(uint64_t bytes,
                                                    const std::vector<device::Device*>& devices) {
  MOMENT_ASSIGN_OR_RETURN(base::AlignedBuffer memory, base::AlignedBuffer::Allocate(bytes));
  MOMENT_ASSIGN_OR_RETURN(device::MemoryRegistration registration,
                          device::MemoryRegistration::Create(devices, memory.span()));
  return Slab{std::move(memory), std::move(registration)};
}

bool FramePool::InOneSlab(const std::byte* first, const std::byte* second) const {
  return std::any_of(slabs_.begin(), slabs_.end(), [&](const Slab& slab) {
    return first >= slab.memory.data() && second < slab.memory.data() + slab.memory.size();
  });
}

void FramePool::Release(std::byte* data, uint64_t bytes) {
  auto [it, inserted] = free_.emplace(data, bytes);
  if (auto after = std::next(it);
      after != free_.end() && data + bytes == after->first && InOneSlab(data, after->first)) {
    it->second += after->second;
    free_.erase(after);
  }
  if (it != free_.begin()) {
    if (auto before = std::prev(it);
        before->first + before->second == data && InOneSlab(before->first, data)) {
      before->second += it->second;
      free_.erase(it);
    }
  }
}

v1::PoolStatus FramePool::Status() const {
  auto count = [this](FrameState state) {
    return counters_[static_cast<size_t>(state)].load(std::memory_order_relaxed);
  };
  v1::PoolStatus status;
  status.set_budget_bytes(budget_bytes_);
  status.set_frames_clean(count(FrameState::kClean));
  status.set_frames_dirty(count(FrameState::kDirty));
  status.set_frames_busy(count(FrameState::kReading) + count(FrameState::kComputing) +
                         count(FrameState::kWriting));
  absl::MutexLock lock(&mutex_);
  status.set_allocated_bytes(allocated_bytes_);
  uint64_t allowed = 0;
  for (const FrameGrant* grant : grants_) {
    allowed += grant->allowed();
  }
  status.set_frames(allowed);
  const uint64_t used = status.frames_clean() + status.frames_dirty() + status.frames_busy();
  status.set_frames_free(allowed - std::min(allowed, used));
  return status;
}

}  // namespace moment::pipeline
