#include "daemon/pipeline/prefetcher.h"

namespace moment::pipeline {

store::BucketImage* Prefetcher::Image(uint32_t chunk) const {
  const auto& applied = write_back_.applied();
  const uint32_t bucket = plan_.chunks()[chunk].bucket;
  if (applied == nullptr || bucket >= applied->state->images.size()) {
    return nullptr;
  }
  return applied->state->images[bucket].get();
}

void Prefetcher::Read(uint32_t chunk, Frame* frame, IoClass io_class) {
  frames_.slot(chunk).base = frame;
  frames_.SetState(frame, FrameState::kReading);
  frame->unreported_bytes =
      io_.Read(frame, *Image(chunk), WholeExtent(plan_.chunks()[chunk]), io_class);
}

bool Prefetcher::ReadExtent(uint32_t chunk, Frame* frame, const ChunkExtent& extent) {
  frames_.slot(chunk).base = frame;
  frame->partial = true;
  frame->unreported_bytes = io_.Read(frame, *Image(chunk), extent, IoClass::kStep);
  const bool reads = frame->unreported_bytes > 0;
  frames_.SetState(frame, reads ? FrameState::kReading : FrameState::kClean);
  return reads;
}

void Prefetcher::Continue() {
  if (!running_) {
    return;
  }
  const auto chunks = static_cast<uint32_t>(plan_.chunks().size());
  for (; next_ < chunks && frames_.residency().Prefetches(next_); ++next_) {
    if (frames_.slot(next_).base != nullptr || Image(next_) == nullptr) {
      continue;
    }
    Frame* frame = frames_.Take(next_);
    if (frame == nullptr) {
      return;
    }
    Read(next_, frame, IoClass::kBackground);
  }
}

}  // namespace moment::pipeline
