// The calls of a trainer: what each checks, and what it does on the executor.
#include <spdlog/spdlog.h>

#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"
#include "daemon/session/participants.h"
#include "daemon/session/session.h"
#include "daemon/session/tensor_set.h"

namespace moment::session {
namespace {

// What must be the same in a repetition: not the locations, which a new Attach may move.
uint64_t Contents(const v1::StepRequest& request) {
  std::string text;
  for (const v1::Group& group : request.groups()) {
    absl::StrAppend(&text, group.SerializeAsString(), "|");
  }
  if (request.has_participants()) {
    absl::StrAppend(&text, "participants|", request.participants().SerializeAsString());
  }
  return absl::HashOf(text, request.follows(), request.blob());
}

std::string TensorName(const pipeline::StatePipeline& pipeline, uint32_t tensor) {
  return pipeline.store().layout()->proto().tensors(static_cast<int>(tensor)).name();
}

absl::Status CheckNamed(const pipeline::StatePipeline& pipeline,
                        const std::vector<uint32_t>& group_of) {
  for (const uint32_t tensor : pipeline.store().added_tensors()) {
    if (group_of[tensor] != pipeline::kSitsOut) {
      return absl::FailedPreconditionError(
          absl::StrCat("tensor ", tensor, " (", TensorName(pipeline, tensor),
                       ") is new to the store: Refresh the new tensors first"));
    }
  }
  return absl::OkStatus();
}

// A Refresh of listed tensors takes all new ones or none: its commit names the new layout.
absl::Status CheckAllAdded(const pipeline::StatePipeline& pipeline,
                           const std::vector<bool>& refreshed) {
  const std::vector<uint32_t> added = pipeline.store().added_tensors();
  bool any = false;
  for (const uint32_t tensor : added) {
    any = any || refreshed[tensor];
  }
  for (const uint32_t tensor : added) {
    if (any && !refreshed[tensor]) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", tensor, " (", TensorName(pipeline, tensor),
          ") is new to the store and not listed: Refresh all new tensors in one call"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::CommitInfo> RunRefresh(pipeline::StatePipeline& pipeline,
                                          const v1::RefreshRequest& request) {
  pipeline::RefreshParameters parameters;
  if (request.has_whole()) {
    parameters.discard = request.whole().discard();
    parameters.start_sequence = request.whole().start_sequence();
    parameters.blob = request.blob();
  } else {
    const auto count = static_cast<uint64_t>(pipeline.store().layout()->proto().tensors_size());
    MOMENT_ASSIGN_OR_RETURN(parameters.tensors, Members(request.tensors(), count, "Refresh"));
    MOMENT_RETURN_IF_ERROR(CheckAllAdded(pipeline, parameters.tensors));
  }
  return pipeline.Refresh(parameters);
}

absl::Status RunMaterialize(pipeline::StatePipeline& pipeline,
                            const v1::MaterializeRequest& request) {
  std::vector<bool> tensors;
  if (request.has_tensors()) {
    const auto count = static_cast<uint64_t>(pipeline.store().layout()->proto().tensors_size());
    MOMENT_ASSIGN_OR_RETURN(tensors, Members(request.tensors(), count, "Materialize"));
  }
  return pipeline.Materialize(tensors);
}

void FillRollback(const pipeline::StatePipeline& pipeline, v1::RollbackResponse& response) {
  response.set_blob(pipeline.applied_blob());
  for (v1::CommitInfo& commit : pipeline.store().live()) {
    *response.add_commits() = std::move(commit);
  }
}

}  // namespace

absl::Status Session::CheckBlob(absl::string_view call, const std::string& blob) const {
  if (blob.size() > options_.blob_limit_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(call, ": the blob has ", blob.size(),
                                                   " bytes; Open declared at most ",
                                                   options_.blob_limit_bytes));
  }
  return absl::OkStatus();
}

absl::Status Session::CheckAttached(absl::string_view call) const {
  return memory_.has_value()
             ? absl::OkStatus()
             : absl::FailedPreconditionError(absl::StrCat(call, ": session ", options_.id,
                                                          " has no buffers: Attach them first"));
}

absl::Status Session::CheckHasState(absl::string_view call) const {
  if (empty_) {
    return absl::FailedPreconditionError(
        absl::StrCat(call, ": the store is empty; Refresh the whole store first"));
  }
  if (must_discard_) {
    return absl::FailedPreconditionError(
        absl::StrCat(call,
                     ": the store was opened to start over (RESUME_NEVER); Refresh the whole "
                     "store with discard first"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::AttachResponse> Session::Attach(const v1::AttachRequest& request) {
  absl::MutexLock lock(&mutex_);
  MOMENT_RETURN_IF_ERROR(AwaitTurn());
  if (request.generation() > generation_ && memory_.has_value()) {
    pipeline_->Detach();  // what it was bound to is about to be closed
    memory_.reset();
  }
  MOMENT_ASSIGN_OR_RETURN(
      TrainerMemory memory,
      TrainerMemory::Create(request, layout_->proto(), generation_, imports_, MemoryTaker()));
  if (ring_ == nullptr) {
    MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<Ring> ring, options_.make_ring());
    if (pidfd_ != nullptr) {
      MOMENT_RETURN_IF_ERROR(ring->WatchPeer(*pidfd_));
    }
    ring_ = std::move(ring);
  }
  generation_ = memory.generation();
  ring_->SetGeneration(generation_);
  const std::shared_ptr<device::Transport> transport = ring_->transport();
  pipeline_->Attach({transport, memory.gradient_types(), memory.parameters()});
  v1::AttachResponse response;
  response.set_ring_slots(transport->slot_count());
  response.set_ring_slot_bytes(transport->slot_bytes());
  for (const v1::RegionStatus& region : memory.regions()) {
    response.add_transports(region.transport());
    spdlog::info("event=region session={} generation={} region={} transport={} bytes={}",
                 options_.id, generation_, region.region(), region.transport(),
                 region.length_bytes());
  }
  spdlog::info("event=attach session={} generation={} transport={}", options_.id, generation_,
               base::Quoted(memory.transport()));
  memory_ = std::move(memory);
  return response;
}

absl::Status Session::Detach(const v1::DetachRequest& request) {
  absl::MutexLock lock(&mutex_);
  MOMENT_RETURN_IF_ERROR(AwaitTurn());
  if (request.generation() != generation_) {
    return absl::FailedPreconditionError(
        absl::StrCat("Detach of generation ", request.generation(), "; attached is ", generation_));
  }
  pipeline_->Detach();
  memory_.reset();
  imports_.Release(Imports::Holder::kStep);
  imports_.Release(Imports::Holder::kAttachment);
  offered_memory_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Operation>> Session::Arrive(const StepLedger::Arrival& arrival,
                                                           Job run) {
  absl::MutexLock lock(&mutex_);
  if (running_step_ == nullptr) {
    MOMENT_RETURN_IF_ERROR(AwaitTurn());
    MOMENT_RETURN_IF_ERROR(CheckHasState(arrival.skip ? "Skip" : "Step"));
  }
  MOMENT_ASSIGN_OR_RETURN(const StepLedger::Verdict verdict, ledger_.Arrive(arrival));
  RenewLease();
  if (verdict == StepLedger::Verdict::kJoin) {
    return running_step_;
  }
  if (verdict == StepLedger::Verdict::kReplay || !arrival.skip) {
    MOMENT_RETURN_IF_ERROR(CheckAttached(arrival.skip ? "Skip" : "Step"));
  }
  ledger_.Begin(arrival);
  running_step_ = std::make_shared<Operation>("", arrival.skip ? "skip" : "step");
  if (verdict == StepLedger::Verdict::kReplay) {
    run = [this](pipeline::StatePipeline& pipeline, Operation& operation) {
      Replay(pipeline, operation);
    };
  }
  Start(running_step_, std::move(run));
  return running_step_;
}

absl::StatusOr<std::shared_ptr<Operation>> Session::Step(const v1::StepRequest& request) {
  MOMENT_RETURN_IF_ERROR(CheckBlob("Step", request.blob()));
  const auto count = static_cast<uint64_t>(layout_->proto().tensors_size());
  MOMENT_ASSIGN_OR_RETURN(pipeline::StepParameters resolved, ResolveStep(request, count));
  const StepLedger::Arrival arrival = {request.sequence(), request.step_id(), request.follows(),
                                       false, Contents(request)};
  auto step = std::make_shared<pipeline::StepParameters>(std::move(resolved));
  return Arrive(
      arrival, [this, request, step](pipeline::StatePipeline& pipeline, Operation& operation) {
        step->bucket_final = [&operation](uint32_t bucket) { operation.AddFinalBucket(bucket); };
        absl::StatusOr<v1::StepStatistics> statistics = TryStep(pipeline, request, *step);
        v1::StepDone done;
        done.set_sequence(request.sequence());
        done.set_step_id(request.step_id());
        if (statistics.ok()) {
          *done.mutable_statistics() = *std::move(statistics);
        }
        FinishStep(operation, statistics.status(), std::move(done));
      });
}

absl::StatusOr<v1::StepStatistics> Session::TryStep(pipeline::StatePipeline& pipeline,
                                                    const v1::StepRequest& request,
                                                    pipeline::StepParameters& step) {
  {
    absl::MutexLock lock(&mutex_);
    MOMENT_ASSIGN_OR_RETURN(step.gradients,
                            memory_->LocateGradients(request, layout_->proto(), MemoryTaker()));
  }
  MOMENT_RETURN_IF_ERROR(CheckNamed(pipeline, step.group_of));
  if (request.expected_size() > 0) {
    MOMENT_RETURN_IF_ERROR(CheckExpectedSteps(request, step.group_of, pipeline.applied_t()));
  }
  return pipeline.Step(step);
}

void Session::Replay(pipeline::StatePipeline& pipeline, Operation& operation) {
  const absl::Status status = pipeline.Materialize({});
  v1::StepDone done;
  {
    absl::MutexLock lock(&mutex_);
    done = last_done_;
  }
  const std::optional<pipeline::Position> applied = pipeline.applied();
  if (applied.has_value() && done.step_id() != applied->step_id) {
    done.Clear();  // applied before this session: its statistics are not known
    done.set_sequence(applied->sequence);
    done.set_step_id(applied->step_id);
  }
  done.set_replayed(true);
  for (int bucket = 0; status.ok() && bucket < layout_->proto().buckets_size(); ++bucket) {
    operation.AddFinalBucket(static_cast<uint32_t>(bucket));
  }
  FinishStep(operation, status, std::move(done));
}

void Session::FinishStep(Operation& operation, const absl::Status& status, v1::StepDone done) {
  {
    absl::MutexLock lock(&mutex_);
    ledger_.Finish(status.ok() && !done.replayed());
    if (status.ok() && !done.replayed()) {
      last_done_ = done;
    }
    running_step_ = nullptr;
  }
  operation.Finish(status, {}, std::move(done));
}

absl::StatusOr<v1::SkipResponse> Session::Skip(const v1::SkipRequest& request) {
  MOMENT_RETURN_IF_ERROR(CheckBlob("Skip", request.blob()));
  const StepLedger::Arrival arrival = {request.sequence(), request.step_id(), request.follows(),
                                       true, absl::HashOf(request.follows(), request.blob())};
  MOMENT_ASSIGN_OR_RETURN(
      const std::shared_ptr<Operation> operation,
      Arrive(arrival, [this, request](pipeline::StatePipeline& pipeline, Operation& running) {
        const absl::Status status =
            pipeline.Skip(request.sequence(), request.step_id(), request.blob());
        v1::StepDone done;
        done.set_sequence(request.sequence());
        done.set_step_id(request.step_id());
        FinishStep(running, status, std::move(done));
      }));
  MOMENT_RETURN_IF_ERROR(operation->Wait());
  const v1::StepDone done = operation->step();
  v1::SkipResponse response;
  response.set_sequence(done.sequence());
  response.set_step_id(done.step_id());
  response.set_skipped(true);
  response.set_replayed(done.replayed());
  return response;
}

absl::StatusOr<v1::FlushResponse> Session::Flush(const v1::FlushRequest& request) {
  v1::FlushResponse response;
  auto operation = std::make_shared<Operation>("", "flush");
  {
    absl::MutexLock lock(&mutex_);
    MOMENT_RETURN_IF_ERROR(AwaitTurn());
    MOMENT_RETURN_IF_ERROR(CheckHasState("Flush"));
    Start(operation, [&](pipeline::StatePipeline& pipeline, Operation& running) {
      const uint64_t stands = pipeline.applied().value_or(pipeline::Position()).sequence;
      if (stands != request.sequence()) {
        running.Finish(absl::FailedPreconditionError(absl::StrCat(
            "Flush of sequence ", request.sequence(), ": the last applied one is ", stands)));
        return;
      }
      absl::StatusOr<v1::CommitInfo> commit = pipeline.Flush(request.sequence());
      if (commit.ok()) {
        *response.mutable_commit() = *std::move(commit);
      }
      running.Finish(commit.status());
    });
  }
  MOMENT_RETURN_IF_ERROR(operation->Wait());
  return response;
}

absl::StatusOr<v1::Operation> Session::RunOperation(const std::string& id, const std::string& kind,
                                                    const std::function<absl::Status()>& check,
                                                    Job job) {
  std::shared_ptr<Operation> operation;
  {
    absl::MutexLock lock(&mutex_);
    MOMENT_ASSIGN_OR_RETURN(operation, operations_.Find(id, kind));
    if (operation == nullptr) {
      MOMENT_RETURN_IF_ERROR(AwaitTurn());
      // Another call may have begun it while this one waited.
      MOMENT_ASSIGN_OR_RETURN(operation, operations_.Find(id, kind));
    }
    if (operation == nullptr) {
      MOMENT_RETURN_IF_ERROR(check());
      operation = std::make_shared<Operation>(id, kind);
      operations_.Add(operation);
      Start(operation, std::move(job));
    }
  }
  MOMENT_RETURN_IF_ERROR(operation->Wait());
  return operation->Describe();
}

absl::Status Session::CheckRefresh(const v1::RefreshRequest& request) const {
  MOMENT_RETURN_IF_ERROR(CheckAttached("Refresh"));
  MOMENT_RETURN_IF_ERROR(CheckBlob("Refresh", request.blob()));
  if (request.what_case() == v1::RefreshRequest::WHAT_NOT_SET) {
    return absl::InvalidArgumentError("Refresh says neither which tensors nor the whole store");
  }
  if (request.has_tensors()) {
    return CheckHasState("Refresh of listed tensors");
  }
  if (!empty_ && !request.whole().discard()) {
    return absl::FailedPreconditionError(
        "Refresh of the whole store: it has state; set discard to start over with zero moments");
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::RefreshResponse> Session::Refresh(const v1::RefreshRequest& request) {
  MOMENT_ASSIGN_OR_RETURN(
      v1::Operation done,
      RunOperation(
          request.operation(), "refresh",
          [this, &request] {
            mutex_.AssertReaderHeld();
            return CheckRefresh(request);
          },
          [this, request](pipeline::StatePipeline& pipeline, Operation& operation) {
            absl::StatusOr<v1::CommitInfo> commit = RunRefresh(pipeline, request);
            v1::Operation result;
            if (commit.ok()) {
              *result.mutable_refresh()->mutable_commit() = *std::move(commit);
              if (request.has_whole()) {
                Restand(pipeline);
              }
            }
            operation.Finish(commit.status(), std::move(result));
          }));
  return std::move(*done.mutable_refresh());
}

void Session::Restand(const pipeline::StatePipeline& pipeline) {
  const std::optional<pipeline::Position> applied = pipeline.applied();
  absl::MutexLock lock(&mutex_);
  empty_ = !applied.has_value();
  must_discard_ = false;
  if (applied.has_value()) {
    ledger_.Reset(applied->sequence, applied->step_id);
  }
}

absl::Status Session::CheckMaterialize() const {
  MOMENT_RETURN_IF_ERROR(CheckAttached("Materialize"));
  return CheckHasState("Materialize");
}

absl::StatusOr<v1::MaterializeResponse> Session::Materialize(
    const v1::MaterializeRequest& request) {
  MOMENT_ASSIGN_OR_RETURN(v1::Operation done,
                          RunOperation(
                              request.operation(), "materialize",
                              [this] {
                                mutex_.AssertReaderHeld();
                                return CheckMaterialize();
                              },
                              [request](pipeline::StatePipeline& pipeline, Operation& operation) {
                                const absl::Status status = RunMaterialize(pipeline, request);
                                const pipeline::Position applied =
                                    pipeline.applied().value_or(pipeline::Position());
                                v1::Operation result;
                                result.mutable_materialize()->set_sequence(applied.sequence);
                                result.mutable_materialize()->set_step_id(applied.step_id);
                                operation.Finish(status, std::move(result));
                              }));
  return std::move(*done.mutable_materialize());
}

absl::StatusOr<v1::RollbackResponse> Session::Rollback(const v1::RollbackRequest& request) {
  MOMENT_ASSIGN_OR_RETURN(
      v1::Operation done,
      RunOperation(
          request.operation(), "rollback",
          [this] {
            mutex_.AssertReaderHeld();
            return CheckHasState("Rollback");
          },
          [this, request](pipeline::StatePipeline& pipeline, Operation& operation) {
            absl::StatusOr<v1::CommitInfo> commit = pipeline.Rollback(request.sequence());
            v1::Operation result;
            if (commit.ok()) {
              *result.mutable_rollback()->mutable_commit() = *std::move(commit);
              FillRollback(pipeline, *result.mutable_rollback());
              Restand(pipeline);
            }
            operation.Finish(commit.status(), std::move(result));
          }));
  return std::move(*done.mutable_rollback());
}

absl::StatusOr<v1::Operation> Session::GetOperation(const std::string& operation) const {
  absl::MutexLock lock(&mutex_);
  MOMENT_ASSIGN_OR_RETURN(const std::shared_ptr<Operation> found, operations_.Find(operation));
  return found->Describe();
}

absl::StatusOr<v1::CloseResponse> Session::Close() {
  v1::CloseResponse response;
  auto operation = std::make_shared<Operation>("", "close");
  {
    absl::MutexLock lock(&mutex_);
    MOMENT_RETURN_IF_ERROR(AwaitTurn());
    Start(operation, [&](pipeline::StatePipeline& pipeline, Operation& running) {
      const absl::Status committed = pipeline.Drain();
      const std::vector<v1::CommitInfo> live = pipeline.store().live();
      if (!live.empty()) {
        *response.mutable_commit() = live.front();
      }
      running.Finish(committed);
    });
  }
  const absl::Status committed = operation->Wait();
  End(absl::FailedPreconditionError("it was closed"));
  MOMENT_RETURN_IF_ERROR(committed);
  return response;
}

}  // namespace moment::session
