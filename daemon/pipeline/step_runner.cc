#include "daemon/pipeline/step_runner.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/failpoint.h"

namespace moment::pipeline {
namespace {

// A file that became shorter is found before the step that would replace it, wherever it ends.
absl::Status CheckLengths(const store::State* base) {
  for (size_t b = 0; base != nullptr && b < base->images.size(); ++b) {
    const io::File& file = base->images[b]->file();
    MOMENT_ASSIGN_OR_RETURN(const uint64_t size, file.Size());
    if (const uint64_t expected = base->layout->buckets()[b].file_bytes; size < expected) {
      return absl::DataLossError(absl::StrCat(file.path(), " ends at offset ", size, " instead of ",
                                              expected,
                                              "; roll back to another commit or load a save"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<store::Mutation>> BeginChange(store::Store& store,
                                                             const store::State* base,
                                                             std::optional<uint64_t> drop_sequence,
                                                             const std::vector<bool>& rewritten,
                                                             const std::vector<bool>& zero) {
  MOMENT_RETURN_IF_ERROR(CheckLengths(base));
  if (drop_sequence.has_value()) {
    MOMENT_RETURN_IF_ERROR(store.Drop(*drop_sequence));
  }
  return store.Begin(base, rewritten, zero);
}

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
  begun_ = begin_posted_;
  next_read_ = 0;
  next_issue_ = 0;
  next_part_ = 0;
  results_left_ = pass_->order().size();
  sends_left_ = results_left_;
  block_ = Block::kNone;
  statistics_.Clear();
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
  for (uint32_t chunk = 0; chunk < parts_.plan->chunks().size(); ++chunk) {
    ChunkSlot& slot = parts_.frames->slot(chunk);
    if (slot.phase == ChunkPhase::kOutside && slot.base != nullptr) {
      parts_.frames->ReleaseIfSpent(slot.base, /*pass_active=*/true);
    }
  }
}

void StepRunner::PostBegin() {
  if (begin_posted_ || begun_ || parts_.write_back->orphan_writes() > 0) {
    return;  // a file that a dropped write still goes to is not free
  }
  begin_posted_ = true;
  auto base = pass_->spec().whole ? nullptr : pass_->base();
  parts_.committer->Post([this, base = std::move(base), drop = pass_->spec().drop_sequence,
                          rewritten = pass_->rewritten(), zero = pass_->moments_zero()] {
    auto mutation = std::make_shared<absl::StatusOr<std::unique_ptr<store::Mutation>>>(
        BeginChange(*parts_.store, base.get(), drop, rewritten, zero));
    parts_.loop->PostFunction([this, mutation] { OnBegun(std::move(*mutation)); });
  });
}

void StepRunner::OnBegun(absl::StatusOr<std::unique_ptr<store::Mutation>> mutation) {
  begun_ = true;
  if (!mutation.ok()) {
    Fail(mutation.status());
    return;
  }
  mutation_ = *std::move(mutation);
  if (!failure_.ok()) {
    return;
  }
  MakeTargets();
  for (const uint32_t chunk : pass_->order()) {
    Frame* frame = parts_.frames->slot(chunk).next;
    if (frame != nullptr && frame->state == FrameState::kDirty && frame->target == nullptr) {
      WriteResult(frame);
    }
  }
}

void StepRunner::MakeTargets() {
  targets_.assign(mutation_->images().size(), nullptr);
  for (size_t b = 0; b < targets_.size(); ++b) {
    if (mutation_->rewritten()[b]) {
      auto target = std::make_shared<TargetImage>();
      target->image = mutation_->images()[b];
      target->main_only = target->image->moments_zero() && target->image->fresh();
      target->unwritten = parts_.plan->buckets()[b].count;
      targets_[b] = std::move(target);
    }
  }
}

void StepRunner::Pump() {
  if (pass_ == nullptr) {
    Prefetch();
    return;
  }
  if (pass_->spec().changes() && !parts_.write_back->failure().ok()) {
    Fail(parts_.write_back->failure());
  }
  if (failure_.ok()) {
    PostBegin();
    const bool frames_sufficed = StartReads();
    StartParts();
    if (!frames_sufficed || block_ == Block::kFrame) {
      FindFrame();
    }
  }
  if (!failure_.ok() && parts_.lanes->busy() == 0 && sealing_ == 0 && begin_posted_ == begun_) {
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

store::BucketImage* StepRunner::BaseImage(uint32_t chunk) const {
  const auto& applied = parts_.write_back->applied();
  const uint32_t bucket = parts_.plan->chunks()[chunk].bucket;
  if (applied == nullptr || bucket >= applied->state->images.size()) {
    return nullptr;
  }
  return applied->state->images[bucket].get();
}

void StepRunner::ReadChunk(uint32_t chunk, Frame* frame, IoClass io_class) {
  parts_.frames->slot(chunk).base = frame;
  parts_.frames->SetState(frame, FrameState::kReading);
  const uint64_t bytes = parts_.io->Read(frame, *BaseImage(chunk), io_class);
  if (pass_ == nullptr || pass_->spec().work.op == device::ChunkOp::kAdam) {
    step_bytes_read_ += bytes;
  }
}

bool StepRunner::StartReads() {
  for (; next_read_ < pass_->order().size(); ++next_read_) {
    const uint32_t chunk = pass_->order()[next_read_];
    const ChunkSlot& slot = parts_.frames->slot(chunk);
    if (slot.phase != ChunkPhase::kWaiting || slot.base != nullptr ||
        pass_->IsFresh(parts_.plan->chunks()[chunk])) {
      continue;
    }
    Frame* frame = parts_.frames->Take(chunk);
    if (frame == nullptr) {
      return false;
    }
    ReadChunk(chunk, frame, IoClass::kStep);
  }
  return true;
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
  const bool fresh = pass_->IsFresh(parts_.plan->chunks()[chunk]);
  if (!fresh && (slot.base == nullptr || slot.base->state == FrameState::kReading)) {
    block_ = slot.base == nullptr ? Block::kFrame : Block::kRead;
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
    parts_.frames->SetState(result, FrameState::kComputing);
  }
  if (slot.base != nullptr && slot.base != slot.next) {
    ++slot.base->users;
  }
  slot.phase = ChunkPhase::kStarted;
  const bool takes_part = pass_->TakesPart(chunk);
  slot.parts_to_compute = takes_part ? static_cast<uint32_t>(part_plan_.parts(chunk).size()) : 0;
  slot.parts_to_send = slot.parts_to_compute;
  if (!takes_part) {
    SealResult(chunk);
    ChunkSent(chunk);
  }
  return true;
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
  if (!pass_->TakesPart(chunk)) {
    return true;
  }
  const ChunkSlot& slot = parts_.frames->slot(chunk);
  const auto parts = part_plan_.parts(chunk);
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
  for (; next_part_ < parts.size() && parts_.lanes->HasFree(); ++next_part_) {
    work.part = &parts[next_part_];
    parts_.lanes->Start(work);
  }
  return next_part_ == parts.size();
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
    SealResult(chunk);
    return;
  }
  slot.phase = ChunkPhase::kDone;
  --slot.base->users;
  --results_left_;
  parts_.frames->ReleaseIfSpent(slot.base, /*pass_active=*/true);
}

void StepRunner::SealResult(uint32_t chunk) {
  const ChunkSlot& slot = parts_.frames->slot(chunk);
  const bool adam = pass_->spec().work.op == device::ChunkOp::kAdam;
  const bool copies = !pass_->TakesPart(chunk);
  ChunkIo::SealOptions options;
  if (slot.base != slot.next && slot.base != nullptr && (copies || PlantedInPlaceUpdate())) {
    options.copy_from = slot.base;
  }
  // Adam has written the moments of a chunk that takes part.
  options.zero_moments = slot.next->moments_zero && (copies || !adam);
  ++sealing_;
  parts_.io->Seal(slot.next, options);
}

void StepRunner::OnSealed(Frame* frame) {
  --sealing_;
  ChunkSlot& slot = parts_.frames->slot(frame->chunk);
  slot.phase = ChunkPhase::kDone;
  if (pass_->spec().work.op == device::ChunkOp::kAdam) {
    frame->moments_zero = false;
  }
  parts_.frames->SetState(frame, FrameState::kDirty);
  --results_left_;
  if (failure_.ok() && mutation_ != nullptr) {
    WriteResult(frame);
  }
  if (slot.base != nullptr && slot.base != frame) {
    --slot.base->users;
    parts_.frames->ReleaseIfSpent(slot.base, /*pass_active=*/true);
  }
}

void StepRunner::WriteResult(Frame* frame) {
  frame->target = targets_[parts_.plan->chunks()[frame->chunk].bucket];
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
  if (!status.ok()) {
    slot.base = nullptr;
    parts_.frames->Free(frame);
    if (pass_ != nullptr && slot.phase == ChunkPhase::kWaiting) {
      Fail(status);
    } else {
      prefetching_ = false;  // the step that needs the chunk reads it again and reports it
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
  if (pass_ != nullptr && failure_.ok()) {
    failure_ = status;
  }
}

// A chunk lacks a frame: the write that frees one comes first, due or not; if nothing is on its
// way, a frame is written or given up for it.
void StepRunner::FindFrame() {
  if (parts_.write_back->ExpediteOldest()) {
    return;
  }
  auto stuck = [this] {
    return block_ == Block::kFrame && parts_.lanes->busy() == 0 && sealing_ == 0 &&
           parts_.frames->reading() == 0 && begun_;
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
  if (parts_.lanes->computing() > 0 || sealing_ > 0) {
    return WaitFor::kAdam;
  }
  return parts_.lanes->busy() > 0 ? WaitFor::kCopy : WaitFor::kCommit;
}

bool StepRunner::Complete() const {
  const auto& answer_after = pass_->spec().answer_after;
  return results_left_ == 0 && sends_left_ == 0 && begun_ &&
         (!answer_after.has_value() || parts_.write_back->LastDue(*answer_after) == nullptr);
}

void StepRunner::Apply() {
  if (!pass_->spec().changes()) {
    for (const uint32_t chunk : pass_->order()) {
      parts_.frames->slot(chunk).phase = ChunkPhase::kOutside;
    }
    return;
  }
  auto version = std::make_shared<Version>();
  auto state = std::make_shared<store::State>(std::move(pass_->spec().next));
  state->id = mutation_->id();
  state->images = mutation_->images();
  version->state = std::move(state);
  version->targets = std::move(targets_);
  const auto applied = parts_.write_back->applied();
  for (size_t b = 0; applied != nullptr && b < applied->targets.size(); ++b) {
    if (!mutation_->rewritten()[b]) {
      version->targets[b] = applied->targets[b];
    }
  }
  version->mutation = std::move(mutation_);
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
  targets_.clear();
  mutation_.reset();
}

void StepRunner::FinishPass(const absl::Status& status) {
  clock_.Report(statistics_);
  statistics_.set_bytes_read(step_bytes_read_);
  if (pass_->spec().work.op == device::ChunkOp::kAdam) {
    step_bytes_read_ = 0;
  }
  pass_.reset();
  RestartPrefetch();
  Done done = std::move(done_);
  done(status, statistics_);
}

void StepRunner::RestartPrefetch() {
  prefetching_ = true;
  prefetch_next_ = 0;
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
  prefetch_next_ = 0;
}

void StepRunner::Prefetch() {
  if (!prefetching_) {
    return;
  }
  const auto chunks = static_cast<uint32_t>(parts_.plan->chunks().size());
  for (; prefetch_next_ < chunks && parts_.frames->residency().Prefetches(prefetch_next_);
       ++prefetch_next_) {
    if (parts_.frames->slot(prefetch_next_).base != nullptr ||
        BaseImage(prefetch_next_) == nullptr) {
      continue;
    }
    Frame* frame = parts_.frames->Take(prefetch_next_);
    if (frame == nullptr) {
      return;
    }
    ReadChunk(prefetch_next_, frame, IoClass::kBackground);
  }
}

}  // namespace moment::pipeline
