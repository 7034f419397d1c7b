#include "daemon/session/session.h"

#include <spdlog/spdlog.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"
#include "daemon/session/tensor_set.h"

namespace moment::session {
namespace {

constexpr size_t kMaxFiles = 4096;
constexpr size_t kMaxOfferedMemory = 8192;

v1::PinSummary Summarize(const store::PinnedCommit& pin, uint64_t held_bytes) {
  v1::PinSummary summary;
  summary.set_id(pin.id);
  *summary.mutable_owner() = pin.owner;
  summary.set_unix_time_ns(pin.unix_time_ns);
  summary.set_commit(pin.commit.id());
  summary.set_sequence(pin.commit.sequence());
  summary.set_size_bytes(pin.size_bytes);
  summary.set_held_bytes(held_bytes);
  return summary;
}

}  // namespace

std::shared_ptr<Session> Session::Create(SessionOptions options,
                                         std::unique_ptr<pipeline::StatePipeline> pipeline) {
  std::shared_ptr<Session> session(new Session(std::move(options), std::move(pipeline)));
  if (session->options_.peer.pidfd != nullptr) {
    session->WatchPeer(session->options_.peer.pidfd);
  }
  return session;
}

Session::Session(SessionOptions options, std::unique_ptr<pipeline::StatePipeline> pipeline)
    : options_(std::move(options)),
      layout_(pipeline->store().layout()),
      opened_(Clock::now()),
      pipeline_(std::move(pipeline)),
      must_discard_(options_.must_discard),
      empty_(!pipeline_->applied().has_value()),
      imports_(options_.importer, options_.device) {
  absl::MutexLock lock(&mutex_);
  if (const std::optional<pipeline::Position> applied = pipeline_->applied()) {
    ledger_.Reset(applied->sequence, applied->step_id);
  }
  RenewLease();
}

Session::~Session() { End(absl::FailedPreconditionError("it was given up")); }

void Session::Describe(v1::OpenResponse& response) const {
  absl::MutexLock lock(&mutex_);
  if (pipeline_ == nullptr) {
    return;
  }
  const store::Store& store = pipeline_->store();
  response.set_session(options_.id);
  response.set_token(options_.token);
  response.set_store_uuid(store.uuid());
  response.mutable_tensor_index()->Assign(store.tensor_index().begin(), store.tensor_index().end());
  response.set_device(options_.device);
  response.set_reserved_bytes(store.reserved_bytes());
  response.set_resident_bytes(pipeline_->Status().resident_bytes);
  response.set_lease_seconds(std::chrono::duration<double>(options_.lease).count());
  const std::optional<pipeline::Position> applied = pipeline_->applied();
  response.set_empty(!applied.has_value());
  if (applied.has_value()) {
    response.mutable_last_applied()->set_sequence(applied->sequence);
    response.mutable_last_applied()->set_step_id(applied->step_id);
    response.set_blob(pipeline_->applied_blob());
  }
  for (v1::CommitInfo& commit : store.live()) {
    *response.add_commits() = std::move(commit);
  }
  std::vector<bool> added(static_cast<size_t>(layout_->proto().tensors_size()), false);
  for (const uint32_t tensor : store.added_tensors()) {
    added[tensor] = true;
  }
  *response.mutable_added() = ToTensorSet(added);
}

v1::SessionStatus Session::Status() const {
  v1::SessionStatus status;
  status.set_session(options_.id);
  *status.mutable_name() = options_.name;
  status.set_pid(static_cast<uint32_t>(options_.peer.pid));
  status.set_uid(options_.peer.uid);
  status.set_device(options_.device);
  status.set_age_seconds(std::chrono::duration<double>(Clock::now() - opened_).count());
  absl::MutexLock lock(&mutex_);
  if (memory_.has_value()) {
    status.set_transport(memory_->transport());
    status.mutable_regions()->Assign(memory_->regions().begin(), memory_->regions().end());
  }
  if (pipeline_ == nullptr) {
    status.set_activity("ended");
    return status;
  }
  pipeline::PipelineStatus state = pipeline_->Status();
  status.set_activity(ended_.has_value() ? "closing" : state.activity);
  status.set_sequence(state.applied_sequence);
  status.set_committed_sequence(state.committed_sequence);
  status.set_steps(state.steps);
  *status.mutable_last_step() = std::move(state.last_step);
  status.set_state_bytes(state.state_bytes);
  status.set_resident_bytes(state.resident_bytes);
  for (const std::shared_ptr<const store::PinnedCommit>& pin : pipeline_->store().pins()) {
    *status.add_pins() = Summarize(*pin, pipeline_->store().HeldBytes(*pin));
  }
  return status;
}

v1::BucketFinal Session::DescribeBucket(uint32_t bucket) const {
  const v1::Bucket& described = layout_->proto().buckets(static_cast<int>(bucket));
  v1::BucketFinal result;
  result.set_member(described.member());
  result.set_bucket(described.number());
  std::vector<bool> tensors(static_cast<size_t>(layout_->proto().tensors_size()), false);
  for (const v1::BucketSlice& slice : described.slices()) {
    const v1::Tensor& tensor = layout_->proto().tensors(static_cast<int>(slice.tensor()));
    tensors[slice.tensor()] =
        slice.element_offset() + slice.element_count() == ElementCount(tensor);
  }
  *result.mutable_tensors() = ToTensorSet(tensors);
  return result;
}

absl::Status Session::CheckAlive() const {
  if (ended_.has_value()) {
    return absl::Status(ended_->code(), absl::StrCat("session ", options_.id, " has ended (",
                                                     ended_->message(), "): open the store again"));
  }
  if (quiescing_) {
    return absl::UnavailableError("the daemon is stopping: try again when it is back");
  }
  return absl::OkStatus();
}

absl::Status Session::AwaitTurn() {
  const auto ready = [this] {
    mutex_.AssertReaderHeld();
    return !busy_ || ended_.has_value() || quiescing_;
  };
  mutex_.Await(absl::Condition(&ready));
  RenewLease();
  return CheckAlive();
}

void Session::Start(std::shared_ptr<Operation> operation, Job job) {
  busy_ = true;
  executor_.Post(
      [this, operation = std::move(operation), job = std::move(job)] { RunJob(operation, job); });
}

void Session::RunJob(const std::shared_ptr<Operation>& operation, const Job& job) {
  absl::Status alive;
  {
    absl::MutexLock lock(&mutex_);
    alive = ended_.has_value() ? CheckAlive() : absl::OkStatus();
  }
  if (alive.ok()) {
    job(*pipeline_, *operation);
  } else {
    operation->Finish(alive);
  }
  absl::MutexLock lock(&mutex_);
  busy_ = false;
}

absl::Status Session::RunAlone(const std::string& kind, const std::function<absl::Status()>& work) {
  auto operation = std::make_shared<Operation>("", kind);
  {
    absl::MutexLock lock(&mutex_);
    MOMENT_RETURN_IF_ERROR(AwaitTurn());
    Start(operation,
          [&work](pipeline::StatePipeline&, Operation& running) { running.Finish(work()); });
  }
  return operation->Wait();
}

absl::StatusOr<std::vector<base::UniqueFd>> Session::RingDescriptors() {
  absl::MutexLock lock(&mutex_);
  MOMENT_RETURN_IF_ERROR(CheckAlive());
  if (ring_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("session ", options_.id, " has no ring yet: Attach makes it"));
  }
  return ring_->Descriptors();
}

absl::Status Session::OfferPidfd(base::UniqueFd pidfd) {
  {
    absl::MutexLock lock(&mutex_);
    MOMENT_RETURN_IF_ERROR(CheckAlive());
  }
  WatchPeer(std::make_shared<base::UniqueFd>(std::move(pidfd)));
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Session::OfferFiles(std::vector<base::UniqueFd> files) {
  absl::MutexLock lock(&mutex_);
  MOMENT_RETURN_IF_ERROR(CheckAlive());
  if (files_.size() + files.size() > kMaxFiles) {
    return absl::ResourceExhaustedError(absl::StrCat("session ", options_.id, " has offered ",
                                                     files_.size(), " files; the most are ",
                                                     kMaxFiles));
  }
  const auto first = static_cast<uint32_t>(files_.size());
  for (base::UniqueFd& file : files) {
    files_.push_back(std::move(file));
  }
  return first;
}

absl::StatusOr<uint32_t> Session::OfferMemory(std::vector<base::UniqueFd> chunks) {
  absl::MutexLock lock(&mutex_);
  MOMENT_RETURN_IF_ERROR(CheckAlive());
  if (offered_memory_.size() + chunks.size() > kMaxOfferedMemory) {
    return absl::ResourceExhaustedError(
        absl::StrCat("session ", options_.id, " has offered ", offered_memory_.size(),
                     " descriptors of GPU memory that no Attach or Step named; the most are ",
                     kMaxOfferedMemory));
  }
  const uint32_t first = next_memory_;
  for (base::UniqueFd& chunk : chunks) {
    offered_memory_.emplace(next_memory_++, std::move(chunk));
  }
  return first;
}

absl::StatusOr<base::UniqueFd> Session::TakeMemory(uint32_t number) {
  const auto found = offered_memory_.find(number);
  if (found == offered_memory_.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "descriptor ", number, " was not offered to this session, or was taken before"));
  }
  base::UniqueFd chunk = std::move(found->second);
  offered_memory_.erase(found);
  return chunk;
}

Imports::TakeDescriptor Session::MemoryTaker() {
  return [this](uint32_t number) {
    mutex_.AssertHeld();
    return TakeMemory(number);
  };
}

// The pipeline is detached, or gone: nothing works on the trainer's memory any more.
void Session::CloseMemory() {
  absl::MutexLock lock(&mutex_);
  memory_.reset();
  imports_.Release(Imports::Holder::kStep);
  imports_.Release(Imports::Holder::kAttachment);
  offered_memory_.clear();
}

absl::Status Session::AttachStream(std::function<void(const absl::Status& reason)> ended) {
  absl::MutexLock lock(&mutex_);
  MOMENT_RETURN_IF_ERROR(CheckAlive());
  if (std::exchange(stream_attached_, true)) {
    return absl::AlreadyExistsError(absl::StrCat("session ", options_.id, " has a stream already"));
  }
  stream_ended_ = std::move(ended);
  RenewLease();
  return absl::OkStatus();
}

absl::Status Session::Renew() {
  absl::MutexLock lock(&mutex_);
  RenewLease();
  return ended_.has_value() ? CheckAlive() : absl::OkStatus();
}

void Session::RenewLease() { lease_ends_ = Clock::now() + options_.lease; }

bool Session::LeaseExpired(Clock::time_point at) const {
  absl::MutexLock lock(&mutex_);
  return !ended_.has_value() && at >= lease_ends_;
}

bool Session::PeerHasEnded() const {
  absl::MutexLock lock(&mutex_);
  return pidfd_ != nullptr && HasEnded(*pidfd_);
}

void Session::WatchPeer(std::shared_ptr<base::UniqueFd> pidfd) {
  if (options_.peers == nullptr) {
    return;
  }
  const uint64_t watch = options_.peers->Add(pidfd, [weak = weak_from_this(), pid = pid()] {
    if (const std::shared_ptr<Session> session = weak.lock()) {
      session->End(absl::FailedPreconditionError(absl::StrCat("its process ", pid, " has ended")));
    }
  });
  uint64_t previous = 0;
  {
    absl::MutexLock lock(&mutex_);
    previous = std::exchange(watch_, watch);
    pidfd_ = std::move(pidfd);
    if (ring_ != nullptr) {
      if (const absl::Status status = ring_->WatchPeer(*pidfd_); !status.ok()) {
        spdlog::warn("event=ring_watch session={} error={}", options_.id,
                     base::Quoted(status.message()));
      }
    }
  }
  options_.peers->Remove(previous);
}

void Session::Quiesce() {
  absl::MutexLock lock(&mutex_);
  quiescing_ = true;
}

void Session::AwaitIdle(Clock::time_point deadline) const {
  absl::MutexLock lock(&mutex_);
  const auto idle = [this] {
    mutex_.AssertReaderHeld();
    return !busy_ || ended_.has_value();
  };
  mutex_.AwaitWithTimeout(absl::Condition(&idle), absl::FromChrono(deadline - Clock::now()));
}

void Session::End(const absl::Status& reason) {
  std::function<void(const absl::Status&)> stream_ended;
  {
    absl::MutexLock lock(&mutex_);
    if (ended_.has_value()) {
      return;
    }
    ended_ = reason;
    stream_ended = std::move(stream_ended_);
    if (ring_ != nullptr) {
      ring_->Close(CheckAlive());
    }
    pipeline_->Abort(CheckAlive());
    executor_.Post([this] { Finalize(); });
  }
  spdlog::info("event=session_end session={} job={} role={} rank={} reason={}", options_.id,
               base::Quoted(options_.name.job()), base::Quoted(options_.name.role()),
               options_.name.rank(), base::Quoted(reason.message()));
  if (stream_ended) {
    stream_ended(reason);
  }
}

bool Session::ended() const {
  absl::MutexLock lock(&mutex_);
  return ended_.has_value();
}

absl::Status Session::EndReason() const {
  absl::MutexLock lock(&mutex_);
  return ended_.has_value() ? CheckAlive() : absl::OkStatus();
}

void Session::Finalize() {
  pipeline_->Detach();
  CloseMemory();  // before the commit: the trainer's GPU memory waits for no disk
  const absl::Status committed = pipeline_->Drain();
  DropAllPins();
  std::unique_ptr<pipeline::StatePipeline> pipeline;
  std::unique_ptr<Ring> ring;
  uint64_t watch = 0;
  {
    absl::MutexLock lock(&mutex_);
    pipeline = std::move(pipeline_);
    ring = std::move(ring_);
    watch = std::exchange(watch_, 0);
    files_.clear();
  }
  pipeline.reset();
  ring.reset();
  if (options_.peers != nullptr) {
    options_.peers->Remove(watch);
  }
  if (options_.gone) {
    options_.gone(committed);
  }
}

}  // namespace moment::session
