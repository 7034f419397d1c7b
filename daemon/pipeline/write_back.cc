#include "daemon/pipeline/write_back.h"

#include <utility>

namespace moment::pipeline {

WriteBack::WriteBack(const ChunkPlan& plan, store::Store& store, FrameTable& frames, ChunkIo& io,
                     Committer& committer, EventLoop& loop)
    : plan_(plan), store_(store), frames_(frames), io_(io), committer_(committer), loop_(loop) {}

void WriteBack::SetApplied(std::shared_ptr<Version> version) {
  applied_ = std::move(version);
  if (applied_ != nullptr && applied_->durable) {
    committed_sequence_ = applied_->state->sequence;
  }
}

uint64_t WriteBack::Write(Frame* frame, IoClass io_class) {
  frames_.SetState(frame, FrameState::kWriting);
  return io_.Write(frame, *frame->target->image, frame->target->main_only, io_class);
}

bool WriteBack::OnWritten(Frame* frame, const absl::Status& status) {
  if (frame->orphan) {
    --orphan_writes_;
    if (status.ok()) {
      --frame->target->unwritten;
    } else if (frame->target->wanted) {
      Latch(status);
    }
    frames_.Free(frame);
    CommitNext();
    return false;
  }
  if (!status.ok()) {
    frames_.SetState(frame, FrameState::kDirty);
    return true;
  }
  --frame->target->unwritten;
  frame->target.reset();
  frames_.SetState(frame, FrameState::kClean);
  CommitNext();
  return true;
}

void WriteBack::Orphan(Frame* frame) {
  frame->orphan = true;
  ++orphan_writes_;
  if (!frame->target->wanted) {
    io_.Cancel(frame);
  }
}

bool WriteBack::ExpediteOldest() {
  Frame* frame = frames_.oldest_write();
  if (frame != nullptr) {
    io_.Expedite(frame);
  }
  return frame != nullptr;
}

void WriteBack::Want(bool due, IoClass io_class) {
  Version& version = *applied_;
  if (due && !version.state->due && !version.committing) {
    auto state = std::make_shared<store::State>(*version.state);
    state->due = true;
    version.state = std::move(state);
  }
  if (!version.wanted) {
    version.wanted = true;
    pending_.push_back(applied_);
    for (const auto& target : version.targets) {
      if (target != nullptr) {
        target->wanted = true;
      }
    }
  }
  for (uint32_t chunk = 0; chunk < plan_.chunks().size(); ++chunk) {
    Frame* frame = frames_.slot(chunk).base;
    if (frame != nullptr && frame->state == FrameState::kDirty) {
      Write(frame, io_class);
    } else if (frame != nullptr && frame->state == FrameState::kWriting &&
               io_class == IoClass::kStep) {
      io_.Expedite(frame);
    }
  }
  CommitNext();
}

void WriteBack::WhenDurable(std::shared_ptr<Version> version,
                            std::function<void(absl::Status)> done) {
  waiters_.push_back({std::move(version), std::move(done)});
  NotifyWaiters();
}

std::shared_ptr<Version> WriteBack::LastDue(uint64_t sequence) const {
  std::shared_ptr<Version> last;
  for (const auto& version : pending_) {
    if (version->state->due && version->state->sequence <= sequence) {
      last = version;
    }
  }
  return last;
}

void WriteBack::CommitNext() {
  if (pending_.empty() || !failure_.ok()) {
    return;
  }
  std::shared_ptr<Version> version = pending_.front();
  if (version->committing || !version->complete()) {
    return;
  }
  version->committing = true;
  committer_.Post([this, version = std::move(version)]() mutable {
    absl::Status status = store_.Commit(std::move(version->mutation), *version->state);
    loop_.PostFunction([this, version = std::move(version), status = std::move(status)]() mutable {
      OnCommitted(std::move(version), status);
    });
  });
}

void WriteBack::OnCommitted(std::shared_ptr<Version> version, const absl::Status& status) {
  if (!status.ok()) {
    Latch(status);
    return;
  }
  version->durable = true;
  version->targets.clear();
  committed_sequence_ = version->state->sequence;
  pending_.pop_front();
  NotifyWaiters();
  CommitNext();
}

void WriteBack::Latch(const absl::Status& failure) {
  if (failure_.ok()) {
    failure_ = failure;
    NotifyWaiters();
  }
}

void WriteBack::NotifyWaiters() {
  for (size_t i = 0; i < waiters_.size();) {
    const bool durable = waiters_[i].version->durable;
    if (!durable && failure_.ok()) {
      ++i;
      continue;
    }
    auto done = std::move(waiters_[i].done);
    waiters_.erase(waiters_.begin() + static_cast<std::ptrdiff_t>(i));
    done(durable ? absl::OkStatus() : failure_);
  }
}

}  // namespace moment::pipeline
