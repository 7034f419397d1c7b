// The changing calls of PipelineImpl. Each runs on its caller's thread and waits for the loop.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/pipeline/pipeline_impl.h"
#include "daemon/pipeline/pipeline_wait.h"

namespace moment::pipeline {
namespace {

constexpr size_t kStepIdBytes = 16;

}  // namespace

absl::Status PipelineImpl::WaitOnLoop(
    bool abortable, const std::function<void(const std::shared_ptr<Wait>&)>& arm) {
  auto wait = std::make_shared<Wait>();
  const uint64_t call = current_call_.load();
  loop_->PostFunction([&, wait] {
    if (abortable && aborted_call_ == call && call != 0) {
      wait->Fire(abort_status_);
      return;
    }
    if (abortable) {
      abortable_wait_ = wait;
    }
    arm(wait);
  });
  wait->fired.WaitForNotification();
  return wait->status;
}

void PipelineImpl::Abort(absl::Status status) {
  const uint64_t call = current_call_.load();
  if (call == 0) {
    return;
  }
  loop_->PostFunction([this, call, status = std::move(status)] {
    if (current_call_.load() != call) {
      return;
    }
    aborted_call_ = call;
    abort_status_ = status;
    runner_.Fail(status);
    if (auto wait = std::exchange(abortable_wait_, nullptr); wait != nullptr) {
      wait->Fire(status);
    }
  });
}

absl::StatusOr<v1::StepStatistics> PipelineImpl::RunPass(PassSpec spec) {
  v1::StepStatistics statistics;
  if (!spec.parts.has_value() && NeedsNoSlots(spec)) {
    spec.parts = whole_chunks_;
  }
  const uint64_t call = current_call_.load();
  const absl::Status status = WaitOnLoop(false, [&, call](const std::shared_ptr<Wait>& wait) {
    if (aborted_call_ == call) {
      wait->Fire(abort_status_);
      return;
    }
    runner_.Start(std::move(spec), [&, wait](absl::Status result, const v1::StepStatistics& s) {
      statistics = s;
      Publish();
      wait->Fire(std::move(result));
    });
  });
  MOMENT_RETURN_IF_ERROR(status);
  return statistics;
}

absl::Status PipelineImpl::WaitDurable(bool want, bool due, bool abortable) {
  return WaitOnLoop(abortable, [this, want, due](const std::shared_ptr<Wait>& wait) {
    const auto applied = write_back_->applied();
    if (want && !applied->durable) {
      write_back_->Want(due, IoClass::kStep);
    }
    Publish();
    write_back_->WhenDurable(applied, [wait](absl::Status status) { wait->Fire(status); });
  });
}

absl::Status PipelineImpl::WaitQuiet() {
  return WaitOnLoop(false, [this](const std::shared_ptr<Wait>& wait) { quiet_wait_ = wait; });
}

absl::Status PipelineImpl::CommitApplied(bool due, bool abortable) {
  MOMENT_RETURN_IF_ERROR(WaitDurable(/*want=*/true, due, abortable));
  if (!due || published()->due) {
    return absl::OkStatus();
  }
  MOMENT_RETURN_IF_ERROR(store_->MarkDue());
  loop_->RunAndWait([this] {
    auto state = std::make_shared<store::State>(*write_back_->applied()->state);
    state->due = true;
    write_back_->applied()->state = std::move(state);
    Publish();
  });
  return absl::OkStatus();
}

absl::StatusOr<v1::CommitInfo> PipelineImpl::NewestCommit() const {
  const std::vector<v1::CommitInfo> live = store_->live();
  if (live.empty()) {
    return absl::InternalError(absl::StrCat("store ", store_->directory(), " has no live commit"));
  }
  return live.front();
}

absl::Status PipelineImpl::CheckReady(bool needs_memory, bool needs_state) {
  absl::Status status;
  loop_->RunAndWait([&] {
    if (!write_back_->failure().ok()) {
      status = absl::FailedPreconditionError(absl::StrCat(
          "store ", store_->directory(),
          " takes no more changes; open it again: ", write_back_->failure().message()));
    } else if (needs_state && write_back_->applied() == nullptr) {
      status = absl::FailedPreconditionError(
          absl::StrCat("store ", store_->directory(), " is empty: Refresh the whole store first"));
    } else if (needs_memory && !attach_status_.ok()) {
      status = attach_status_;
    } else if (needs_memory && !lanes_->bound()) {
      status = absl::FailedPreconditionError(
          absl::StrCat("no trainer's memory is attached to store ", store_->directory()));
    }
  });
  return status;
}

absl::StatusOr<PassSpec> PipelineImpl::StepSpec(const StepParameters& parameters) const {
  const auto base = published();
  PassSpec spec;
  spec.work.op = device::ChunkOp::kAdam;
  spec.work.profile = options_.profile;
  spec.work.group_of = parameters.group_of;
  spec.work.gradients = parameters.gradients;
  spec.work.hyperparameters = parameters.hyperparameters;
  spec.work.participates.resize(static_cast<size_t>(store_->layout()->proto().tensors_size()));
  spec.next.sequence = parameters.sequence;
  spec.next.step_id = parameters.step_id;
  spec.next.due = IsDue(parameters.sequence);
  spec.next.layout = base->layout;
  spec.next.t = base->t;
  spec.next.groups = parameters.groups;
  spec.next.blob = parameters.blob;
  for (size_t i = 0; i < parameters.group_of.size(); ++i) {
    if (parameters.group_of[i] == kSitsOut) {
      continue;
    }
    if (i >= base->t.size()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "tensor ", i, " is not in the applied state: Refresh the tensors that were added"));
    }
    if (parameters.group_of[i] >= parameters.hyperparameters.size()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", i, " is in group ",
                                                     parameters.group_of[i], " of ",
                                                     parameters.hyperparameters.size()));
    }
    spec.work.participates[i] = 1;
    ++spec.next.t[i];
  }
  if (parameters.sequence > 0) {
    spec.answer_after = parameters.sequence - 1;
  }
  spec.drop_sequence = parameters.sequence;
  spec.bucket_final = parameters.bucket_final;
  return spec;
}

absl::StatusOr<v1::StepStatistics> PipelineImpl::Step(const StepParameters& parameters) {
  CallScope scope(*this, "step");
  MOMENT_RETURN_IF_ERROR(CheckReady(/*needs_memory=*/true, /*needs_state=*/true));
  MOMENT_ASSIGN_OR_RETURN(PassSpec spec, StepSpec(parameters));
  MOMENT_ASSIGN_OR_RETURN(v1::StepStatistics statistics, RunPass(std::move(spec)));
  absl::MutexLock lock(&mutex_);
  ++steps_;
  last_step_ = statistics;
  return statistics;
}

absl::Status PipelineImpl::Skip(uint64_t sequence, const std::string& step_id,
                                const std::string& blob) {
  CallScope scope(*this, "skip");
  MOMENT_RETURN_IF_ERROR(CheckReady(/*needs_memory=*/false, /*needs_state=*/true));
  MOMENT_RETURN_IF_ERROR(store_->Drop(sequence));
  std::shared_ptr<Version> base;
  loop_->RunAndWait([&] { base = write_back_->applied(); });
  std::unique_ptr<store::Mutation> mutation;
  // A state that is never committed under its own sequence just goes on under the next.
  const bool relabels = !base->wanted;
  if (!relabels) {
    const std::vector<bool> none(base->state->images.size());
    MOMENT_ASSIGN_OR_RETURN(mutation, store_->Begin(base->state.get(), none, none));
  }
  MOMENT_RETURN_IF_ERROR(WaitOnLoop(true, [&](const std::shared_ptr<Wait>& wait) {
    auto due = sequence == 0 ? nullptr : write_back_->LastDue(sequence - 1);
    if (due == nullptr) {
      wait->Fire(write_back_->failure());
    } else {
      write_back_->WhenDurable(due, [wait](absl::Status status) { wait->Fire(status); });
    }
  }));
  loop_->RunAndWait([&] {
    auto state = std::make_shared<store::State>(*base->state);
    state->sequence = sequence;
    state->step_id = step_id;
    state->blob = blob;
    state->due = IsDue(sequence);
    if (!relabels) {
      state->id = mutation->id();
      state->images = mutation->images();
      auto version = std::make_shared<Version>();
      version->targets = base->targets;
      version->targets.resize(state->images.size());
      version->mutation = std::move(mutation);
      write_back_->SetApplied(std::move(version));
    }
    write_back_->applied()->state = std::move(state);
    if (write_back_->applied()->state->due) {
      write_back_->Want(/*due=*/false, IoClass::kBackground);
    }
    Publish();
  });
  return absl::OkStatus();
}

absl::StatusOr<v1::CommitInfo> PipelineImpl::Flush(uint64_t sequence) {
  CallScope scope(*this, "flush");
  MOMENT_RETURN_IF_ERROR(CheckReady(/*needs_memory=*/false, /*needs_state=*/true));
  if (const uint64_t applied = published()->sequence; applied != sequence) {
    return absl::FailedPreconditionError(
        absl::StrCat("Flush names sequence ", sequence, ", but the last applied one is ", applied));
  }
  MOMENT_RETURN_IF_ERROR(CommitApplied(/*due=*/true, /*abortable=*/true));
  return NewestCommit();
}

absl::StatusOr<PassSpec> PipelineImpl::WholeRefreshSpec(const RefreshParameters& parameters) const {
  const auto base = published();
  if (base != nullptr && !parameters.discard) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", store_->directory(), " holds sequence ", base->sequence,
                     "; a Refresh of the whole store needs `discard`, which starts over"));
  }
  PassSpec spec;
  const auto tensors = static_cast<size_t>(store_->layout()->proto().tensors_size());
  spec.work.participates.assign(tensors, 1);
  spec.whole = true;
  spec.next.sequence = parameters.start_sequence;
  spec.next.due = true;
  spec.next.step_id.assign(kStepIdBytes, '\0');
  spec.next.layout = store_->layout();
  spec.next.t.assign(tensors, 0);
  spec.next.blob = parameters.blob;
  return spec;
}

absl::StatusOr<PassSpec> PipelineImpl::TensorRefreshSpec(
    const RefreshParameters& parameters) const {
  const auto base = published();
  if (base == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("store ", store_->directory(), " is empty: Refresh the whole store first"));
  }
  PassSpec spec;
  const auto tensors = static_cast<size_t>(store_->layout()->proto().tensors_size());
  spec.work.participates.resize(tensors);
  size_t added = 0;
  for (size_t i = 0; i < std::min(tensors, parameters.tensors.size()); ++i) {
    spec.work.participates[i] = parameters.tensors[i] ? 1 : 0;
    added += parameters.tensors[i] && i >= base->t.size() ? 1 : 0;
  }
  if (added != 0 && added != tensors - base->t.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat(tensors - base->t.size(), " tensors were added to store ", store_->directory(),
                     "; Refresh all of them at once, not ", added));
  }
  spec.next = *base;
  if (added != 0) {
    spec.next.layout = store_->layout();
    spec.next.t.resize(tensors, 0);
  }
  return spec;
}

absl::StatusOr<v1::CommitInfo> PipelineImpl::Refresh(const RefreshParameters& parameters) {
  CallScope scope(*this, "refresh");
  MOMENT_RETURN_IF_ERROR(CheckReady(/*needs_memory=*/true, /*needs_state=*/false));
  MOMENT_ASSIGN_OR_RETURN(PassSpec spec, parameters.tensors.empty()
                                             ? WholeRefreshSpec(parameters)
                                             : TensorRefreshSpec(parameters));
  spec.work.op = device::ChunkOp::kRefresh;
  return RunChange(std::move(spec));
}

absl::StatusOr<v1::CommitInfo> PipelineImpl::RunChange(PassSpec spec) {
  if (published() != nullptr) {
    // Every frame is then clean.
    MOMENT_RETURN_IF_ERROR(CommitApplied(/*due=*/false, /*abortable=*/true));
  }
  spec.work.profile = options_.profile;
  spec.commits = true;
  MOMENT_RETURN_IF_ERROR(RunPass(std::move(spec)).status());
  MOMENT_RETURN_IF_ERROR(WaitDurable(/*want=*/true, /*due=*/false, /*abortable=*/false));
  return NewestCommit();
}

absl::Status PipelineImpl::Materialize(const std::vector<bool>& tensors) {
  CallScope scope(*this, "materialize");
  MOMENT_RETURN_IF_ERROR(CheckReady(/*needs_memory=*/true, /*needs_state=*/true));
  const size_t known = published()->t.size();
  PassSpec spec;
  spec.work.op = device::ChunkOp::kMaterialize;
  spec.work.profile = options_.profile;
  spec.work.participates.resize(static_cast<size_t>(store_->layout()->proto().tensors_size()));
  for (size_t i = 0; i < known; ++i) {
    spec.work.participates[i] = tensors.empty() || (i < tensors.size() && tensors[i]) ? 1 : 0;
  }
  return RunPass(std::move(spec)).status();
}

absl::StatusOr<v1::CommitInfo> PipelineImpl::Rollback(uint64_t sequence) {
  CallScope scope(*this, "rollback");
  MOMENT_RETURN_IF_ERROR(CheckReady(/*needs_memory=*/false, /*needs_state=*/true));
  if (published()->sequence == sequence) {
    MOMENT_RETURN_IF_ERROR(CommitApplied(/*due=*/true, /*abortable=*/true));
    return NewestCommit();
  }
  loop_->RunAndWait([this] { prefetcher_->Stop(); });
  MOMENT_RETURN_IF_ERROR(WaitQuiet());
  auto state = store_->Rollback(sequence);
  loop_->RunAndWait([&] {
    if (state.ok()) {
      DropAllFrames();
      ReplaceState(*state);
    } else {
      runner_.RestartPrefetch();
    }
  });
  MOMENT_RETURN_IF_ERROR(state.status());
  return NewestCommit();
}

void PipelineImpl::DropAllFrames() {
  for (uint32_t chunk = 0; chunk < plan_.chunks().size(); ++chunk) {
    Frame* frame = std::exchange(frames_->slot(chunk).base, nullptr);
    if (frame != nullptr && frame->state == FrameState::kWriting) {
      write_back_->Orphan(frame);
    } else if (frame != nullptr) {
      frames_->Free(frame);
    }
  }
}

absl::Status PipelineImpl::Drain() {
  CallScope scope(*this, "drain");
  loop_->RunAndWait([this] { prefetcher_->Stop(); });
  if (published() != nullptr) {
    MOMENT_RETURN_IF_ERROR(CheckReady(/*needs_memory=*/false, /*needs_state=*/true));
    MOMENT_RETURN_IF_ERROR(CommitApplied(/*due=*/false, /*abortable=*/false));
  }
  return WaitQuiet();
}

}  // namespace moment::pipeline
