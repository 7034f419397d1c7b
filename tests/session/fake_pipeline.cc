#include "tests/session/fake_pipeline.h"

#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>

#include "absl/strings/str_cat.h"

namespace moment::session {
namespace {

std::shared_ptr<const store::Layout> FakeLayout() {
  v1::Layout layout;
  layout.set_format_version(1);
  layout.set_profile(v1::PROFILE_TORCH_CPU);
  layout.add_members()->set_name("opt0_0");
  v1::Bucket* bucket = layout.add_buckets();
  for (uint32_t i = 0; i < 2; ++i) {
    v1::Tensor* tensor = layout.add_tensors();
    tensor->set_name(absl::StrCat("weight", i));
    tensor->add_shape(8);
    tensor->set_parameter_type(v1::DATA_TYPE_FLOAT32);
    v1::BucketSlice* slice = bucket->add_slices();
    slice->set_tensor(i);
    slice->set_element_count(8);
  }
  return store::Layout::Create(std::move(layout)).value();
}

class FakeTransport : public device::Transport {
 public:
  uint32_t slot_count() const override { return 2; }
  uint64_t slot_bytes() const override { return 4096; }
  uint32_t max_runs() const override { return 16; }
  std::span<std::byte> slot(uint32_t) const override { return {}; }
  void Submit(device::TransportCommand* command) override {
    command->done(command, absl::UnimplementedError("a fake"));
  }
};

class FakeRing : public Ring {
 public:
  explicit FakeRing(std::shared_ptr<std::atomic<bool>> closed) : closed_(std::move(closed)) {}

  std::shared_ptr<device::Transport> transport() override { return transport_; }
  absl::StatusOr<std::vector<base::UniqueFd>> Descriptors() override {
    std::vector<base::UniqueFd> descriptors;
    for (int i = 0; i < 4; ++i) {
      descriptors.emplace_back(::eventfd(0, EFD_CLOEXEC));
    }
    return descriptors;
  }
  absl::Status WatchPeer(const base::UniqueFd&) override { return absl::OkStatus(); }
  void SetGeneration(uint64_t) override {}
  void Close(const absl::Status&) override { *closed_ = true; }

 private:
  const std::shared_ptr<std::atomic<bool>> closed_;
  const std::shared_ptr<device::Transport> transport_ = std::make_shared<FakeTransport>();
};

class MemoryFile : public io::File {
 public:
  MemoryFile() : File("fake", false), fd_(::memfd_create("fake", MFD_CLOEXEC)) {}

  int fd() const override { return fd_.get(); }
  absl::StatusOr<uint64_t> Size() const override { return 0; }
  absl::Status Allocate(uint64_t) override { return absl::UnimplementedError("a fake"); }

 private:
  const base::UniqueFd fd_;
};

}  // namespace

FakeStore::FakeStore(std::shared_ptr<const store::Layout> layout) : layout_(std::move(layout)) {
  for (int i = 0; i < layout_->proto().tensors_size(); ++i) {
    index_.push_back(static_cast<uint32_t>(i));
  }
}

absl::StatusOr<std::unique_ptr<store::Mutation>> FakeStore::Begin(const store::State*,
                                                                  const std::vector<bool>&,
                                                                  const std::vector<bool>&) {
  return absl::UnimplementedError("a fake");
}

absl::Status FakeStore::Commit(std::unique_ptr<store::Mutation>, const store::State&) {
  return absl::UnimplementedError("a fake");
}

absl::StatusOr<std::shared_ptr<const store::State>> FakeStore::Rollback(uint64_t) {
  return absl::UnimplementedError("a fake");
}

absl::StatusOr<std::shared_ptr<const store::PinnedCommit>> FakeStore::Pin(
    const store::PinParameters& parameters) {
  auto pin = std::make_shared<store::PinnedCommit>();
  pin->id = parameters.id;
  pin->owner = parameters.owner;
  pin->commit = commits.front();
  pin->layout = layout_;
  pin->t = {pin->commit.sequence(), 0};
  pin->files = {3};
  pin->size_bytes = 100;
  absl::MutexLock lock(&mutex_);
  pins_.push_back(pin);
  return pin;
}

absl::Status FakeStore::Unpin(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  const size_t dropped = std::erase_if(pins_, [&](const auto& pin) { return pin->id == id; });
  return dropped == 0 ? absl::NotFoundError("no such pin") : absl::OkStatus();
}

std::vector<std::shared_ptr<const store::PinnedCommit>> FakeStore::pins() const {
  absl::MutexLock lock(&mutex_);
  return pins_;
}

absl::StatusOr<std::vector<std::unique_ptr<io::File>>> FakeStore::OpenPinned(const std::string& id,
                                                                             uint32_t first,
                                                                             uint32_t count) const {
  absl::MutexLock lock(&mutex_);
  if (std::none_of(pins_.begin(), pins_.end(), [&](const auto& pin) { return pin->id == id; })) {
    return absl::NotFoundError("no such pin");
  }
  std::vector<std::unique_ptr<io::File>> files;
  if (first == 0 && count > 0) {
    files.push_back(std::make_unique<MemoryFile>());
  }
  return files;
}

void FakeDisk::Hold() {
  absl::MutexLock lock(&mutex);
  hold = true;
}

void FakeDisk::Release() {
  absl::MutexLock lock(&mutex);
  hold = false;
}

void FakeDisk::AwaitStep() {
  absl::MutexLock lock(&mutex);
  mutex.Await(absl::Condition(&in_step));
}

int FakeDisk::Count(const std::string& call) {
  absl::MutexLock lock(&mutex);
  return static_cast<int>(std::count(calls.begin(), calls.end(), call));
}

FakePipeline::FakePipeline(std::shared_ptr<FakeDisk> disk,
                           std::shared_ptr<const store::Layout> layout)
    : disk_(std::move(disk)), store_(std::move(layout)) {
  absl::MutexLock lock(&disk_->mutex);
  if (disk_->applied.has_value()) {
    Commit();
  }
}

const store::Store& FakePipeline::store() const {
  absl::MutexLock lock(&disk_->mutex);
  store_.added = disk_->added;
  return store_;
}

std::optional<pipeline::Position> FakePipeline::applied() const {
  absl::MutexLock lock(&disk_->mutex);
  return disk_->applied;
}

std::vector<uint64_t> FakePipeline::applied_t() const {
  absl::MutexLock lock(&disk_->mutex);
  if (!disk_->t.empty()) {
    return disk_->t;
  }
  return std::vector<uint64_t>(2, disk_->applied.has_value() ? disk_->applied->sequence : 0);
}

void FakePipeline::Note(const std::string& call) const {
  absl::MutexLock lock(&disk_->mutex);
  disk_->calls.push_back(call);
}

v1::CommitInfo FakePipeline::Commit() {
  disk_->committed = disk_->applied->sequence;
  v1::CommitInfo commit;
  commit.set_id(disk_->committed + 1);
  commit.set_sequence(disk_->committed);
  commit.set_step_id(disk_->applied->step_id);
  store_.commits = {commit};
  return commit;
}

void FakePipeline::Attach(pipeline::Bindings) { Note("attach"); }

absl::StatusOr<v1::StepStatistics> FakePipeline::Step(const pipeline::StepParameters& parameters) {
  parameters.bucket_final(0);
  absl::MutexLock lock(&disk_->mutex);
  disk_->calls.push_back(absl::StrCat("step ", parameters.sequence));
  if (const absl::Status aborted = WaitWhileHeld(); !aborted.ok()) {
    return aborted;
  }
  if (std::exchange(disk_->fail_next, false)) {
    return absl::DataLossError("a planted failure");
  }
  disk_->applied = pipeline::Position{parameters.sequence, parameters.step_id};
  v1::StepStatistics statistics;
  statistics.set_chunks(1);
  return statistics;
}

absl::Status FakePipeline::WaitWhileHeld() {
  disk_->in_step = true;
  const auto free = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(disk_->mutex) {
    return !disk_->hold || !aborted_.ok();
  };
  disk_->mutex.Await(absl::Condition(&free));
  disk_->in_step = false;
  return std::exchange(aborted_, absl::OkStatus());
}

absl::Status FakePipeline::Skip(uint64_t sequence, const std::string& step_id, const std::string&) {
  absl::MutexLock lock(&disk_->mutex);
  disk_->calls.push_back(absl::StrCat("skip ", sequence));
  disk_->applied = pipeline::Position{sequence, step_id};
  return absl::OkStatus();
}

absl::StatusOr<v1::CommitInfo> FakePipeline::Flush(uint64_t) {
  Note("flush");
  absl::MutexLock lock(&disk_->mutex);
  return Commit();
}

absl::StatusOr<v1::CommitInfo> FakePipeline::Refresh(
    const pipeline::RefreshParameters& parameters) {
  Note("refresh");
  absl::MutexLock lock(&disk_->mutex);
  if (parameters.tensors.empty()) {
    disk_->applied = pipeline::Position{parameters.start_sequence, std::string(16, '\0')};
  } else {
    disk_->added.clear();
  }
  return Commit();
}

absl::Status FakePipeline::Materialize(const std::vector<bool>&) {
  Note("materialize");
  return absl::OkStatus();
}

absl::StatusOr<v1::CommitInfo> FakePipeline::Rollback(uint64_t sequence) {
  Note("rollback");
  absl::MutexLock lock(&disk_->mutex);
  disk_->applied = pipeline::Position{sequence, std::string(16, 'r')};
  return Commit();
}

absl::Status FakePipeline::Read(const pipeline::ReadParameters& parameters) {
  absl::MutexLock lock(&disk_->mutex);
  disk_->calls.push_back("read");
  disk_->last_read = parameters;
  return WaitWhileHeld();
}

absl::StatusOr<v1::CommitInfo> FakePipeline::Write(const pipeline::WriteParameters& parameters) {
  absl::MutexLock lock(&disk_->mutex);
  disk_->calls.push_back("write");
  disk_->last_write = parameters;
  if (const absl::Status aborted = WaitWhileHeld(); !aborted.ok()) {
    return aborted;
  }
  return Commit();
}

absl::StatusOr<std::vector<pipeline::TensorDigest>> FakePipeline::Digest(
    const std::vector<bool>& tensors) {
  Note("digest");
  std::vector<pipeline::TensorDigest> digests;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i]) {
      digests.push_back({i, {10 + i, 20 + i, 30 + i}});
    }
  }
  return digests;
}

absl::StatusOr<std::shared_ptr<const store::PinnedCommit>> FakePipeline::Pin(
    const store::PinParameters& parameters) {
  absl::MutexLock lock(&disk_->mutex);
  disk_->calls.emplace_back("pin");
  if (const absl::Status aborted = WaitWhileHeld(); !aborted.ok()) {
    return aborted;
  }
  Commit();
  return store_.Pin(parameters);
}

absl::Status FakePipeline::Unpin(const std::string& id) { return store_.Unpin(id); }

void FakePipeline::Abort(absl::Status status) {
  absl::MutexLock lock(&disk_->mutex);
  if (disk_->in_step) {
    aborted_ = std::move(status);
  }
}

absl::Status FakePipeline::Drain() {
  Note("drain");
  absl::MutexLock lock(&disk_->mutex);
  if (disk_->applied.has_value()) {
    Commit();
  }
  return absl::OkStatus();
}

pipeline::PipelineStatus FakePipeline::Status() const {
  pipeline::PipelineStatus status;
  absl::MutexLock lock(&disk_->mutex);
  status.activity = disk_->in_step ? "step" : "idle";
  status.committed_sequence = disk_->committed;
  return status;
}

FakeOpener::FakeOpener() : layout(FakeLayout()) {}

absl::StatusOr<OpenedStore> FakeOpener::Open(const v1::OpenRequest&, uid_t) {
  OpenedStore opened;
  opened.pipeline = std::make_unique<FakePipeline>(disk, layout);
  opened.profile = v1::PROFILE_TORCH_CPU;
  opened.device = device;
  opened.importer = importer;
  opened.io_engine = "fake";
  return opened;
}

MakeRing MakeFakeRing(std::shared_ptr<std::atomic<bool>> closed) {
  return [closed]() -> absl::StatusOr<std::unique_ptr<Ring>> {
    return std::make_unique<FakeRing>(closed);
  };
}

v1::OpenRequest FakeOpenRequest(const std::string& job) {
  v1::OpenRequest request;
  request.mutable_name()->set_job(job);
  request.mutable_name()->set_role("model");
  request.add_members()->set_name("opt0_0");
  request.set_blob_limit_bytes(1024);
  return request;
}

}  // namespace moment::session
