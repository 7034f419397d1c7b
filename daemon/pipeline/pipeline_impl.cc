#include "daemon/pipeline/pipeline_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/pipeline/pipeline_wait.h"
#include "daemon/pipeline/residency.h"

namespace moment::pipeline {
namespace {

constexpr uint64_t kNoLimit = UINT64_MAX / 2;

bool IsEmpty(const v1::Tensor& tensor) {
  return std::find(tensor.shape().begin(), tensor.shape().end(), 0) != tensor.shape().end();
}

// Where the applied state must outlive the next step in memory, a chunk takes two frames.
uint32_t FramesEach(uint64_t commit_every) { return commit_every == 1 ? 1 : 2; }

}  // namespace

absl::StatusOr<std::unique_ptr<StatePipeline>> StatePipeline::Create(
    Node& node, device::Device& device, std::unique_ptr<store::Store> store,
    const PipelineOptions& options) {
  IoScheduler* scheduler = node.SchedulerFor(store->directory());
  if (scheduler == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("no state directory of this node holds ", store->directory()));
  }
  if (!device.Supports(options.profile)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "device ", device.name(), " cannot run this store's arithmetic profile; choose another"));
  }
  auto pipeline =
      std::make_unique<PipelineImpl>(node, device, std::move(store), options, *scheduler);
  MOMENT_RETURN_IF_ERROR(pipeline->Init(node.frames()));
  return pipeline;
}

PipelineImpl::PipelineImpl(Node& node, device::Device& device, std::unique_ptr<store::Store> store,
                           const PipelineOptions& options, IoScheduler& scheduler)
    : options_(options),
      device_(device),
      store_(std::move(store)),
      node_(node),
      scheduler_(scheduler),
      plan_(*store_->layout(), options.chunk_bytes),
      sweeper_(std::make_unique<Committer>()),
      committer_(std::make_unique<Committer>()),
      loop_(std::make_unique<EventLoop>([this] { AfterBatch(); })) {}

absl::Status PipelineImpl::Init(FramePool& pool) {
  const auto chunks = static_cast<uint32_t>(plan_.chunks().size());
  FrameDemand demand;
  demand.frame_bytes = plan_.frame_bytes();
  demand.minimum = MinimumFrames(chunks);
  demand.wanted = WantedFrames(chunks, FramesEach(options_.commit_every));
  demand.allowance_changed = [this] {
    loop_->PostFunction([this] {
      if (frames_ != nullptr) {
        runner_.AdjustFrames();
      }
    });
  };
  MOMENT_ASSIGN_OR_RETURN(auto grant, pool.Open(std::move(demand)));
  loop_->RunAndWait([&] {
    frames_ =
        std::make_unique<FrameTable>(plan_, std::move(grant), FramesEach(options_.commit_every));
    io_ = std::make_unique<ChunkIo>(plan_, scheduler_, node_.workers(), *loop_, runner_);
    lanes_ = std::make_unique<Lanes>(plan_, device_, *loop_, runner_);
    digester_ = std::make_unique<Digester>(plan_, node_.workers(), *loop_, runner_);
    write_back_ = std::make_unique<WriteBack>(plan_, *store_, *frames_, *io_, *committer_, *loop_);
    change_ = std::make_unique<Change>(plan_, *store_, *committer_, *loop_);
    prefetcher_ = std::make_unique<Prefetcher>(plan_, *frames_, *io_, *write_back_);
    runner_.Connect({&plan_, frames_.get(), io_.get(), lanes_.get(), digester_.get(),
                     write_back_.get(), change_.get(), prefetcher_.get()});
    if (auto newest = store_->newest(); newest != nullptr) {
      ReplaceState(std::move(newest));
    }
  });
  return absl::OkStatus();
}

PipelineImpl::~PipelineImpl() {
  if (frames_ != nullptr) {
    loop_->RunAndWait([this] {
      write_back_->Latch(absl::CancelledError("the store is closing"));
      prefetcher_->Stop();
      for (Frame* frame = frames_->oldest_write(); frame != nullptr; frame = frame->next) {
        io_->Cancel(frame);
      }
    });
    WaitQuiet().IgnoreError();
  }
  committer_.reset();
  sweeper_.reset();
  // What the pool still tells the loop is ignored from here on.
  if (frames_ != nullptr) {
    loop_->RunAndWait([this] { frames_.reset(); });
  }
  loop_.reset();
}

void PipelineImpl::AfterBatch() {
  if (write_back_ == nullptr || frames_ == nullptr) {
    return;
  }
  runner_.Pump();
  committed_sequence_.store(write_back_->committed_sequence(), std::memory_order_relaxed);
  resident_bytes_.store(frames_->resident_bytes(), std::memory_order_relaxed);
  if (quiet_wait_ != nullptr && Quiet()) {
    std::exchange(quiet_wait_, nullptr)->Fire(absl::OkStatus());
  }
}

bool PipelineImpl::Quiet() const {
  const bool commits_done = write_back_->idle() || !write_back_->failure().ok();
  return commits_done && frames_->reading() == 0 && frames_->oldest_write() == nullptr;
}

std::shared_ptr<const store::State> PipelineImpl::published() const {
  absl::MutexLock lock(&mutex_);
  return published_;
}

void PipelineImpl::Publish() {
  const auto& applied = write_back_->applied();
  absl::MutexLock lock(&mutex_);
  published_ = applied == nullptr ? nullptr : applied->state;
  const absl::Status& failure = write_back_->failure();
  failure_ = failure.ok() ? std::string() : std::string(failure.message());
}

std::optional<Position> PipelineImpl::applied() const {
  const auto state = published();
  if (state == nullptr) {
    return std::nullopt;
  }
  return Position{state->sequence, state->step_id};
}

std::string PipelineImpl::applied_blob() const {
  const auto state = published();
  return state == nullptr ? std::string() : state->blob;
}

std::vector<uint64_t> PipelineImpl::applied_t() const {
  const auto state = published();
  return state == nullptr ? std::vector<uint64_t>() : state->t;
}

void PipelineImpl::Attach(Bindings bindings) {
  const auto& tensors = store_->layout()->proto().tensors();
  std::vector<TensorTypes> types(static_cast<size_t>(tensors.size()));
  for (size_t i = 0; i < types.size(); ++i) {
    types[i].parameter = ToDeviceType(tensors[static_cast<int>(i)].parameter_type());
    types[i].gradient =
        i < bindings.gradient_types.size() ? bindings.gradient_types[i] : types[i].parameter;
  }
  absl::StatusOr<PartPlan> parts = absl::FailedPreconditionError("the transport has no slots");
  if (bindings.transport != nullptr && bindings.transport->slot_count() > 0) {
    parts = PartPlan::Create(plan_, ArraysOf(types), bindings.transport->slot_bytes());
  }
  absl::StatusOr<PartPlan> whole =
      PartPlan::Create(plan_, std::vector<SlotArrays>(types.size(), SlotArrays{1}), kNoLimit);
  on_device_.assign(types.size(), false);
  for (size_t i = 0; whole.ok() && i < types.size(); ++i) {
    on_device_[i] = IsEmpty(tensors[static_cast<int>(i)]) ||
                    (i < bindings.parameters.size() && bindings.parameters[i] != nullptr);
  }
  whole_chunks_ = whole.ok() ? *std::move(whole) : PartPlan();
  loop_->RunAndWait([&] {
    lanes_->Unbind();
    attach_status_ = parts.status();
    if (parts.ok()) {
      const uint64_t max_runs = std::max(parts->max_runs(), whole_chunks_.max_runs());
      runner_.SetPartPlan(*std::move(parts));
      lanes_->Bind(std::move(bindings.transport), std::move(types), max_runs,
                   std::move(bindings.parameters));
    }
  });
}

bool PipelineImpl::NeedsNoSlots(const PassSpec& spec) const {
  const device::ChunkOp op = spec.work.op;
  if (spec.digests != nullptr || op == device::ChunkOp::kRead || op == device::ChunkOp::kWrite) {
    return false;
  }
  for (size_t i = 0; i < spec.work.participates.size(); ++i) {
    if (spec.work.participates[i] == 0) {
      continue;
    }
    const bool gradient = op != device::ChunkOp::kAdam ||
                          (i < spec.work.gradients.size() && spec.work.gradients[i] != nullptr);
    if (i >= on_device_.size() || !on_device_[i] ||
        !(gradient || IsEmpty(store_->layout()->proto().tensors(static_cast<int>(i))))) {
      return false;
    }
  }
  return true;
}

void PipelineImpl::Detach() {
  loop_->RunAndWait([this] {
    lanes_->Unbind();
    attach_status_ = absl::OkStatus();
  });
}

void PipelineImpl::ReplaceState(std::shared_ptr<const store::State> state) {
  auto version = std::make_shared<Version>();
  version->targets.resize(state->images.size());
  version->state = std::move(state);
  version->wanted = true;
  version->durable = true;
  write_back_->SetApplied(std::move(version));
  runner_.RestartPrefetch();
  Publish();
}

PipelineStatus PipelineImpl::Status() const {
  PipelineStatus status;
  status.committed_sequence = committed_sequence_.load(std::memory_order_relaxed);
  status.resident_bytes = resident_bytes_.load(std::memory_order_relaxed);
  status.state_bytes = plan_.state_bytes();
  absl::MutexLock lock(&mutex_);
  status.activity = activity_;
  status.applied_sequence = published_ == nullptr ? 0 : published_->sequence;
  status.steps = steps_;
  status.last_step = last_step_;
  status.failure = failure_;
  return status;
}

}  // namespace moment::pipeline
