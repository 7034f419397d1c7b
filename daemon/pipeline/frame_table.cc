#include "daemon/pipeline/frame_table.h"

#include <utility>

namespace moment::pipeline {

FrameTable::FrameTable(const ChunkPlan& plan, std::unique_ptr<FrameGrant> grant,
                       uint32_t frames_each)
    : plan_(plan),
      grant_(std::move(grant)),
      frames_each_(frames_each),
      slots_(plan.chunks().size()) {
  Adjust();
}

FrameTable::~FrameTable() {
  for (Frame& frame : frames_) {
    if (frame.data != nullptr) {
      SetState(&frame, FrameState::kFree);
      grant_->Give(frame.data);
    }
  }
}

uint64_t FrameTable::resident_bytes() const {
  uint64_t bytes = 0;
  for (uint32_t c = 0; c < residency_.resident; ++c) {
    bytes += plan_.chunks()[c].bytes();
  }
  return bytes;
}

void FrameTable::Adjust() {
  residency_ = PlanResidency(grant_->allowed(), static_cast<uint32_t>(slots_.size()), frames_each_);
  streaming_ = 0;
  for (const Frame& frame : frames_) {
    streaming_ += frame.chunk != kNoChunk && !residency_.Keeps(frame.chunk) ? 1 : 0;
  }
  while (over_allowance() && free_.head != nullptr) {
    Frame* frame = free_.head;
    Remove(free_, frame);
    GiveBack(frame);
  }
}

Frame* FrameTable::Take(uint32_t chunk) {
  const bool streams = !residency_.Keeps(chunk);
  if (streams && streaming_ >= residency_.window) {
    return nullptr;
  }
  Frame* frame = free_.head;
  if (frame != nullptr) {
    Remove(free_, frame);
  } else if (frame = Grow(); frame == nullptr) {
    return nullptr;
  }
  frame->chunk = chunk;
  streaming_ += streams ? 1 : 0;
  return frame;
}

Frame* FrameTable::Grow() {
  std::byte* data = grant_->Take();
  if (data == nullptr) {
    return nullptr;
  }
  Frame* frame = hollow_.head;
  if (frame != nullptr) {
    Remove(hollow_, frame);
  } else {
    frame = &frames_.emplace_back();
    frame->checksums.resize(plan_.max_units());
  }
  frame->data = data;
  ++held_;
  return frame;
}

void FrameTable::GiveBack(Frame* frame) {
  grant_->Give(std::exchange(frame->data, nullptr));
  --held_;
  Append(hollow_, frame);
}

void FrameTable::Free(Frame* frame) {
  SetState(frame, FrameState::kFree);
  streaming_ -= residency_.Keeps(frame->chunk) ? 0 : 1;
  frame->chunk = kNoChunk;
  frame->target.reset();
  frame->users = 0;
  frame->moments_zero = false;
  frame->unreported_bytes = 0;
  frame->orphan = false;
  frame->partial = false;
  if (over_allowance()) {
    GiveBack(frame);
  } else {
    Append(free_, frame);
  }
}

void FrameTable::SetState(Frame* frame, FrameState state) {
  if (frame->state == state) {
    return;
  }
  if (frame->state == FrameState::kWriting) {
    Remove(writing_, frame);
  } else if (state == FrameState::kWriting) {
    Append(writing_, frame);
  }
  reading_ += state == FrameState::kReading ? 1 : 0;
  reading_ -= frame->state == FrameState::kReading ? 1 : 0;
  grant_->Count(frame->state, state);
  frame->state = state;
}

void FrameTable::ReleaseIfSpent(Frame* frame, bool pass_active) {
  if (frame->state != FrameState::kClean || frame->users > 0) {
    return;
  }
  if (frame->orphan) {
    Free(frame);
    return;
  }
  const uint32_t chunk = frame->chunk;
  ChunkSlot& slot = slots_[chunk];
  if (frame == slot.next) {  // the pass's result, in its file
    if (slot.phase == ChunkPhase::kDone && !residency_.Keeps(chunk)) {
      slot.base = slot.base == frame ? nullptr : slot.base;
      slot.next = nullptr;
      Free(frame);
    }
    return;
  }
  const bool replaced = slot.next != nullptr;
  const bool spent = pass_active
                         ? slot.phase == ChunkPhase::kOutside || slot.phase == ChunkPhase::kDone
                         : frame->partial || !residency_.Prefetches(chunk) || over_allowance();
  if (replaced || (spent && (frame->partial || !residency_.Keeps(chunk)))) {
    slot.base = nullptr;
    Free(frame);
  }
}

bool FrameTable::EvictFor(uint32_t chunk) {
  for (auto c = static_cast<uint32_t>(slots_.size()); c-- > 0;) {
    ChunkSlot& slot = slots_[c];
    Frame* frame = slot.phase == ChunkPhase::kDone && slot.next != nullptr ? slot.next : slot.base;
    if (c == chunk || slot.phase == ChunkPhase::kStarted || frame == nullptr ||
        frame->state != FrameState::kClean || frame->users > 0) {
      continue;
    }
    slot.next = nullptr;
    slot.base = slot.base == frame ? nullptr : slot.base;
    Free(frame);
    return true;
  }
  return false;
}

void FrameTable::Append(List& list, Frame* frame) {
  frame->next = nullptr;
  frame->previous = list.tail;
  (list.tail == nullptr ? list.head : list.tail->next) = frame;
  list.tail = frame;
}

void FrameTable::Remove(List& list, Frame* frame) {
  (frame->previous == nullptr ? list.head : frame->previous->next) = frame->next;
  (frame->next == nullptr ? list.tail : frame->next->previous) = frame->previous;
  frame->previous = nullptr;
  frame->next = nullptr;
}

}  // namespace moment::pipeline
