#include "daemon/pipeline/step_runner.h"

#include <utility>

#include "daemon/base/failpoint.h"

namespace moment::pipeline {
namespace {

// Test-only: a result is computed into the frame of the applied state even where that frame is on
// its way to the disk. Tests show that they would see it.
bool PlantedInPlaceUpdate() { return !base::Failpoint("pipeline.update_writing_frame").ok(); }

}  // namespace

void StepRunner::Start(PassSpec spec, Done done) {
  const auto& applied = parts_.write_back->applied();
  pass_ = std::make_unique<Pass>(*parts_.plan, std::move(spec),
                                 applied == nullptr ? nullptr : applied->state);
  done_ = std::move(done);
  failure_ = absl::OkStatus();
  dropped_ = false;
  begin_posted_ = !pass_->spec().changes();  // nothing to begin
  next_read_ = 0;
  next_issue_ = 0;
  next_part_ = 0;
  results_left_ = pass_->order().size();
  sends_left_ = results_left_;
  block_ = Block::kNone;
  statistics_.Clear();
  bytes_read_ = 0;
  clock_.Start();
  PrepareSlots();
  pass_->ReportUntouchedBuckets();
}

void StepRunner::PrepareSlots() {
  uint64_t in_pool = 0;
  for (const uint32_t chunk : pass_->order()) {
    ChunkSlot& slot = parts_.frames->slot(chunk);
    slot.phase = ChunkPhase::kWaiting;
    in_pool += slot.base != nullptr ? 1 : 0;
    if (slot.base != nullptr && slot.base->state == FrameState::kReading) {
      parts_.io->Expedite(slot.base);
    }
  }
  statistics_.set_chunks(pass_->order().size());
  statistics_.set_chunks_in_pool(in_pool);
  MakeRoom();
}

// Gives up what was read ahead for the next step: all of it, but where a pass only reads no more
// than it needs, the last first.
void StepRunner::MakeRoom() {
  uint64_t wanted = 0;
  for (const uint32_t chunk : pass_->order()) {
    const bool streams = !parts_.frames->residency().Keeps(chunk);
    wanted += streams && parts_.frames->slot(chunk).base == nullptr ? 1 : 0;
  }
  const bool only_reads = !pass_->spec().changes();
  evicted_bytes_ = 0;
  fetched_bytes_ = 0;
  for (auto chunk = static_cast<uint32_t>(parts_.plan->chunks().size()); chunk-- > 0;) {
    if (only_reads && parts_.frames->streaming_room() >= wanted) {
      break;
    }
    ChunkSlot& slot = parts_.frames->slot(chunk);
    if (slot.phase == ChunkPhase::kOutside && slot.base != nullptr) {
      parts_.frames->ReleaseIfSpent(slot.base, /*pass_active=*/true);
      evicted_bytes_ += slot.base == nullptr ? parts_.plan->chunks()[chunk].bytes() : 0;
    }
  }
  keeps_read_ahead_ = only_reads && parts_.frames->streaming_room() >= wanted;
}

void StepRunner::BeginChange() {
  if (begin_posted_ || parts_.write_back->orphan_writes() > 0) {
    return;  // a file that a dropped write still goes to is not free
  }
  begin_posted_ = true;
  parts_.change->Begin(*pass_, [this](absl::Status status) { OnBegun(status); });
}

void StepRunner::OnBegun(const absl::Status& status) {
  if (!status.ok()) {
    Fail(status);
  }
  for (size_t i = 0; failure_.ok() && i < pass_->order().size(); ++i) {
    Frame* frame = parts_.frames->slot(pass_->order()[i]).next;
    if (frame != nullptr && frame->state == FrameState::kDirty && frame->target == nullptr) {
      WriteResult(frame);
    }
  }
}

void StepRunner::Pump() {
  if (pass_ == nullptr) {
    parts_.prefetcher->Continue();
    return;
  }
  if (pass_->spec().changes() && !parts_.write_back->failure().ok()) {
    Fail(parts_.write_back->failure());
  }
  if (failure_.ok()) {
    BeginChange();
    const bool frames_sufficed = StartReads();
    StartParts();
    if (!frames_sufficed || block_ == Block::kFrame) {
      FindFrame();
    }
  }
  if (!failure_.ok() && !Working() && partial_reads_ == 0 && !parts_.change->under_way()) {
    DropResults();
    if (parts_.write_back->orphan_writes() == 0) {
      FinishPass(failure_);
      return;
    }
  } else if (failure_.ok() && Complete()) {
    Apply();
    FinishPass(absl::OkStatus());
    return;
  }
  clock_.Note(Waiting());
}

bool StepRunner::StartReads() {
  for (; next_read_ < pass_->order().size(); ++next_read_) {
    const uint32_t chunk = pass_->order()[next_read_];
    const ChunkSlot& slot = parts_.frames->slot(chunk);
    if (slot.phase != ChunkPhase::kWaiting || slot.base != nullptr || pass_->IsFresh(chunk)) {
      continue;
    }
    Frame* frame = parts_.frames->Take(chunk);
    if (frame == nullptr) {
      return false;
    }
    Read(chunk, frame);
  }
  return true;
}

// What of the chunk is read for the pass; nullopt: all of it.
std::optional<ChunkExtent> StepRunner::ExtentOf(uint32_t chunk) const {
  // What a materialisation reads of chunks that stay, the next step reads no more.
  const bool stays = pass_->spec().work.op == device::ChunkOp::kMaterialize &&
                     parts_.frames->residency().Keeps(chunk);
  return stays ? std::nullopt : pass_->Extent(chunk);
}

void StepRunner::Read(uint32_t chunk, Frame* frame) {
  const std::optional<ChunkExtent> extent = ExtentOf(chunk);
  if (!extent.has_value()) {
    parts_.prefetcher->Read(chunk, frame, IoClass::kStep);
  } else if (parts_.prefetcher->ReadExtent(chunk, frame, *extent)) {
    ++partial_reads_;
  }
  fetched_bytes_ += frame->unreported_bytes;
}

void StepRunner::StartParts() {
  block_ = Block::kNone;
  for (; next_issue_ < pass_->order().size(); ++next_issue_) {
    const uint32_t chunk = pass_->order()[next_issue_];
    if (parts_.frames->slot(chunk).phase == ChunkPhase::kWaiting) {
      if (!BeginChunk(chunk)) {
        return;
      }
      next_part_ = 0;
    }
    if (!HandOut(chunk)) {
      block_ = Block::kLane;
      return;
    }
  }
}

// Grants the chunk all frames it needs, or says what is missing.
bool StepRunner::BeginChunk(uint32_t chunk) {
  ChunkSlot& slot = parts_.frames->slot(chunk);
  const bool fresh = pass_->IsFresh(chunk);
  const bool reading = slot.base != nullptr && slot.base->state == FrameState::kReading;
  if (reading || (!fresh && slot.base == nullptr)) {
    block_ = reading ? Block::kRead : Block::kFrame;
    return false;
  }
  if (pass_->spec().changes()) {
    Frame* result = ResultFrame(chunk);
    if (result == nullptr) {
      block_ = Block::kFrame;
      return false;
    }
    slot.next = result;
    result->moments_zero = fresh || slot.base->moments_zero;
    result->partial = false;  // what was not read is overwritten
    parts_.frames->SetState(result, FrameState::kComputing);
  }
  if (slot.base != nullptr && slot.base != slot.next) {
    ++slot.base->users;
  }
  CountRead(slot.base);
  slot.phase = ChunkPhase::kStarted;
  const bool digests = pass_->spec().digests != nullptr;
  const bool lanes = pass_->UsesLanes(chunk);
  slot.parts_to_compute =
      lanes ? static_cast<uint32_t>(PartsOf(chunk).size()) : static_cast<uint32_t>(digests);
  slot.parts_to_send = slot.parts_to_compute;
  if (!lanes && !digests) {
    FillResult(chunk);
    ChunkSent(chunk);
  }
  return true;
}

// Once for steps, whether a step read it or it was read ahead.
void StepRunner::CountRead(Frame* base) {
  if (base == nullptr) {
    return;
  }
  bytes_read_ += base->unreported_bytes;
  if (pass_->spec().work.op == device::ChunkOp::kAdam) {
    base->unreported_bytes = 0;
  }
}

std::span<const Part> StepRunner::PartsOf(uint32_t chunk) const {
  const auto& own = pass_->spec().parts;
  return (own.has_value() ? *own : part_plan_).parts(chunk);
}

// Only a clean frame is updated in place; from any other the result goes to another frame.
Frame* StepRunner::ResultFrame(uint32_t chunk) {
  Frame* base = parts_.frames->slot(chunk).base;
  if (base != nullptr && base->state == FrameState::kClean && base->users == 0) {
    return base;
  }
  return parts_.frames->Take(chunk);
}

bool StepRunner::HandOut(uint32_t chunk) {
  if (pass_->spec().digests != nullptr) {
    return HandOutDigest(chunk);
  }
  if (!pass_->UsesLanes(chunk)) {
    return true;
  }
  const ChunkSlot& slot = parts_.frames->slot(chunk);
  const auto parts = PartsOf(chunk);
  Lanes::PartWork work;
  work.pass = &pass_->spec().work;
  work.chunk = chunk;
  work.in = slot.base != nullptr ? slot.base : slot.next;
  work.out = slot.next;
  if (slot.base != slot.next && slot.base != nullptr && slot.next != nullptr &&
      PlantedInPlaceUpdate()) {
    work.out = slot.base;
  }
  work.moments_zero = slot.next != nullptr ? slot.next->moments_zero : slot.base->moments_zero;
  work.fresh = pass_->IsFresh(chunk);
  for (; next_part_ < parts.size() && parts_.lanes->HasFree(); ++next_part_) {
    work.part = &parts[next_part_];
    parts_.lanes->Start(work);
  }
  return next_part_ == parts.size();
}

bool StepRunner::HandOutDigest(uint32_t chunk) {
  if (parts_.digester->busy()) {
    return false;
  }
  parts_.digester->Start(*pass_->spec().digests, *parts_.frames->slot(chunk).base);
  return true;
}

void StepRunner::OnPartComputed(uint32_t chunk, double device_seconds) {
  statistics_.set_adam_seconds(statistics_.adam_seconds() + device_seconds);
  if (--parts_.frames->slot(chunk).parts_to_compute == 0) {
    ChunkComputed(chunk);
  }
}

void StepRunner::ChunkComputed(uint32_t chunk) {
  ChunkSlot& slot = parts_.frames->slot(chunk);
  if (pass_->spec().changes()) {
    FillResult(chunk);
    return;
  }
  slot.phase = ChunkPhase::kDone;
  --slot.base->users;
  --results_left_;
  parts_.frames->ReleaseIfSpent(slot.base, /*pass_active=*/!keeps_read_ahead_);
}

void StepRunner::FillResult(uint32_t chunk) {
  const ChunkSlot& slot = parts_.frames->slot(chunk);
  const bool copies = !pass_->UsesLanes(chunk);
  ChunkIo::FillOptions options;
  if (slot.base != slot.next && slot.base != nullptr && (copies || PlantedInPlaceUpdate())) {
    options.copy_from = slot.base;
  }
  // The device writes all moments of a chunk that passes through it.
  options.zero_moments = pass_->MomentsZero(parts_.plan->chunks()[chunk].bucket) ||
                         (copies && slot.next->moments_zero);
  if (pass_->spec().work.op == device::ChunkOp::kWrite) {
    options.zeros = pass_->spec().work.access;
  }
  if (options.empty()) {
    CompleteResult(slot.next);
    return;
  }
  ++filling_;
  parts_.io->Fill(slot.next, options);
}

void StepRunner::OnFilled(Frame* frame) {
  --filling_;
  CompleteResult(frame);
}

void StepRunner::CompleteResult(Frame* frame) {
  ChunkSlot& slot = parts_.frames->slot(frame->chunk);
  slot.phase = ChunkPhase::kDone;
  frame->moments_zero = pass_->MomentsZero(parts_.plan->chunks()[frame->chunk].bucket);
  parts_.frames->SetState(frame, FrameState::kDirty);
  --results_left_;
  if (failure_.ok() && parts_.change->ready()) {
    WriteResult(frame);
  }
  if (slot.base != nullptr && slot.base != frame) {
    --slot.base->users;
    parts_.frames->ReleaseIfSpent(slot.base, /*pass_active=*/true);
  }
}

void StepRunner::WriteResult(Frame* frame) {
  frame->target = parts_.change->target(parts_.plan->chunks()[frame->chunk].bucket);
  const bool stays = parts_.frames->residency().Keeps(frame->chunk);
  const PassSpec& spec = pass_->spec();
  if (stays && !spec.next.due && !spec.commits) {
    return;  // superseded when the next step is applied, unless a Flush comes before
  }
  const bool waited_for = !stays || spec.commits;
  const uint64_t bytes =
      parts_.write_back->Write(frame, waited_for ? IoClass::kStep : IoClass::kBackground);
  statistics_.set_bytes_written(statistics_.bytes_written() + bytes);
}

void StepRunner::OnPartSent(uint32_t chunk) {
  if (--parts_.frames->slot(chunk).parts_to_send == 0) {
    ChunkSent(chunk);
  }
}

void StepRunner::ChunkSent(uint32_t chunk) {
  --sends_left_;
  pass_->ReportChunkSent(parts_.plan->chunks()[chunk]);
}

void StepRunner::OnPartFailed(uint32_t, const absl::Status& status) { Fail(status); }

void StepRunner::OnRead(Frame* frame, absl::Status status) {
  const uint32_t chunk = frame->chunk;
  ChunkSlot& slot = parts_.frames->slot(chunk);
  partial_reads_ -= frame->partial ? 1 : 0;
  if (!status.ok()) {
    const bool ahead = !frame->partial;
    slot.base = nullptr;
    parts_.frames->Free(frame);
    const bool needed =
        pass_ != nullptr && slot.phase == ChunkPhase::kWaiting && !pass_->IsFresh(chunk);
    if (needed && ahead && ExtentOf(chunk).has_value()) {
      next_read_ = next_issue_;  // the part that the pass needs may be sound
    } else if (needed) {
      Fail(status);
    } else {
      parts_.prefetcher->Stop();  // the step that needs the chunk reads it again and reports it
    }
    return;
  }
  parts_.frames->SetState(frame, FrameState::kClean);
  parts_.frames->ReleaseIfSpent(frame, active());
}

void StepRunner::OnWritten(Frame* frame, absl::Status status) {
  const bool cancelled = absl::IsCancelled(status);
  if (!parts_.write_back->OnWritten(frame, status)) {
    return;
  }
  if (status.ok()) {
    parts_.frames->ReleaseIfSpent(frame, active());
  } else if (frame == parts_.frames->slot(frame->chunk).next) {
    Fail(status);
  } else if (!cancelled) {
    parts_.write_back->Latch(status);
  }
}

void StepRunner::Fail(const absl::Status& status) {
  if (pass_ == nullptr || !failure_.ok()) {
    return;
  }
  failure_ = status;
  for (const uint32_t chunk : pass_->order()) {
    Frame* frame = parts_.frames->slot(chunk).base;
    if (partial_reads_ > 0 && frame != nullptr && frame->partial &&
        frame->state == FrameState::kReading) {
      parts_.io->Cancel(frame);
    }
  }
}

// A chunk lacks a frame: the write that frees one comes first, due or not; if nothing is on its
// way, a frame is written or given up for it.
void StepRunner::FindFrame() {
  if (parts_.write_back->ExpediteOldest()) {
    return;
  }
  auto stuck = [this] {
    return block_ == Block::kFrame && !Working() && parts_.frames->reading() == 0 &&
           begin_posted_ && !parts_.change->under_way();
  };
  if (!stuck() || SpillOne()) {
    return;
  }
  while (stuck() && parts_.frames->EvictFor(pass_->order()[next_issue_])) {
    next_read_ = next_issue_;
    StartReads();
    StartParts();
  }
}

bool StepRunner::SpillOne() {
  auto spill = [this](Frame* frame) {
    if (frame == nullptr || frame->state != FrameState::kDirty || frame->target == nullptr) {
      return false;
    }
    statistics_.set_bytes_written(statistics_.bytes_written() +
                                  parts_.write_back->Write(frame, IoClass::kStep));
    return true;
  };
  if (spill(parts_.frames->slot(pass_->order()[next_issue_]).base)) {
    return true;  // clean then, and updated in place
  }
  for (auto chunk = static_cast<uint32_t>(parts_.plan->chunks().size()); chunk-- > 0;) {
    const ChunkSlot& slot = parts_.frames->slot(chunk);
    if (spill(slot.base) || spill(slot.next)) {
      return true;
    }
  }
  return false;
}

WaitFor StepRunner::Waiting() const {
  if (next_issue_ < pass_->order().size() && block_ == Block::kRead) {
    return WaitFor::kRead;
  }
  if (next_issue_ < pass_->order().size() && block_ == Block::kFrame) {
    return WaitFor::kFrame;
  }
  if (parts_.lanes->computing() > 0 || parts_.digester->busy() || filling_ > 0) {
    return WaitFor::kAdam;
  }
  return parts_.lanes->busy() > 0 ? WaitFor::kCopy : WaitFor::kCommit;
}

bool StepRunner::Complete() const {
  const auto& answer_after = pass_->spec().answer_after;
  return results_left_ == 0 && sends_left_ == 0 && begin_posted_ && !parts_.change->under_way() &&
         (!answer_after.has_value() || parts_.write_back->LastDue(*answer_after) == nullptr);
}

void StepRunner::Apply() {
  if (!pass_->spec().changes()) {
    for (const uint32_t chunk : pass_->order()) {
      parts_.frames->slot(chunk).phase = ChunkPhase::kOutside;
    }
    return;
  }
  auto version =
      parts_.change->Finish(std::move(pass_->spec().next), parts_.write_back->applied().get());
  for (const uint32_t chunk : pass_->order()) {
    ChunkSlot& slot = parts_.frames->slot(chunk);
    Frame* old = std::exchange(slot.base, std::exchange(slot.next, nullptr));
    slot.phase = ChunkPhase::kOutside;
    if (old != nullptr && old != slot.base) {
      Supersede(old);
    }
  }
  parts_.write_back->SetApplied(std::move(version));
  if (parts_.write_back->applied()->state->due || pass_->spec().commits) {
    parts_.write_back->Want(/*due=*/false, IoClass::kBackground);
  }
}

void StepRunner::Supersede(Frame* frame) {
  if (frame->state == FrameState::kWriting) {
    parts_.write_back->Orphan(frame);
  } else {
    parts_.frames->Free(frame);
  }
}

void StepRunner::DropResults() {
  if (std::exchange(dropped_, true)) {
    return;
  }
  for (const uint32_t chunk : pass_->order()) {
    ChunkSlot& slot = parts_.frames->slot(chunk);
    Frame* result = std::exchange(slot.next, nullptr);
    slot.phase = ChunkPhase::kOutside;
    if (result != nullptr && result == slot.base) {
      slot.base = nullptr;  // it was clean: the bytes are in the file
    }
    if (result != nullptr) {
      Supersede(result);
    }
    if (slot.base != nullptr) {
      slot.base->users = 0;
      parts_.frames->ReleaseIfSpent(slot.base, /*pass_active=*/false);
    }
  }
  parts_.change->Drop();
}

void StepRunner::FinishPass(const absl::Status& status) {
  clock_.Report(statistics_);
  statistics_.set_bytes_read(bytes_read_);
  pass_.reset();
  // A small read does not make up for reading ahead again what it took the place of.
  const bool made_up = evicted_bytes_ > 0 && fetched_bytes_ >= evicted_bytes_;
  if (!keeps_read_ahead_ || made_up) {
    RestartPrefetch();
  } else {
    ReleaseSpent();
  }
  Done done = std::move(done_);
  done(status, statistics_);
}

void StepRunner::RestartPrefetch() {
  parts_.prefetcher->Restart();
  ReleaseSpent();
}

void StepRunner::ReleaseSpent() {
  for (uint32_t chunk = 0; chunk < parts_.plan->chunks().size(); ++chunk) {
    if (Frame* frame = parts_.frames->slot(chunk).base; frame != nullptr) {
      parts_.frames->ReleaseIfSpent(frame, active());
    }
  }
}

void StepRunner::AdjustFrames() {
  parts_.frames->Adjust();
  for (uint32_t chunk = 0; chunk < parts_.plan->chunks().size(); ++chunk) {
    ChunkSlot& slot = parts_.frames->slot(chunk);
    for (Frame* frame : {slot.next, slot.base}) {
      if (frame == nullptr || (frame != slot.next && frame != slot.base)) {
        continue;
      }
      if (frame->state == FrameState::kDirty && frame->target != nullptr &&
          !parts_.frames->residency().Keeps(chunk)) {
        parts_.write_back->Write(frame, IoClass::kBackground);
      } else {
        parts_.frames->ReleaseIfSpent(frame, active());
      }
    }
  }
  parts_.prefetcher->Restart();
}

}  // namespace moment::pipeline
