#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/pipeline/state_pipeline.h"
#include "daemon/session/ring.h"
#include "daemon/session/store_opener.h"

namespace moment::session {

// A store that holds nothing but what a session asks of it.
class FakeStore : public store::Store {
 public:
  explicit FakeStore(std::shared_ptr<const store::Layout> layout);

  const std::string& directory() const override { return directory_; }
  const std::string& uuid() const override { return uuid_; }
  std::shared_ptr<const store::Layout> layout() const override { return layout_; }
  const std::vector<uint32_t>& tensor_index() const override { return index_; }
  std::vector<uint32_t> added_tensors() const override { return added; }
  uint64_t reserved_bytes() const override { return 0; }
  std::vector<std::string> warnings() const override { return {}; }
  std::shared_ptr<const store::State> newest() const override { return nullptr; }
  std::vector<v1::CommitInfo> live() const override { return commits; }
  absl::Status Drop(uint64_t) override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<store::Mutation>> Begin(const store::State*,
                                                         const std::vector<bool>&,
                                                         const std::vector<bool>&) override;
  absl::Status Commit(std::unique_ptr<store::Mutation>, const store::State&) override;
  absl::Status MarkDue() override { return absl::OkStatus(); }
  absl::StatusOr<std::shared_ptr<const store::State>> Rollback(uint64_t) override;
  // Of the newest of `commits`; its one file is an empty one in memory.
  absl::StatusOr<std::shared_ptr<const store::PinnedCommit>> Pin(
      const store::PinParameters& parameters) override;
  absl::Status Unpin(const std::string& id) override;
  std::vector<std::shared_ptr<const store::PinnedCommit>> pins() const override;
  uint64_t HeldBytes(const store::PinnedCommit&) const override { return 100; }
  absl::StatusOr<std::vector<std::unique_ptr<io::File>>> OpenPinned(const std::string& id,
                                                                    uint32_t first,
                                                                    uint32_t count) const override;
  absl::Status Sweep() override { return absl::OkStatus(); }
  bool wants_sweep() const override { return false; }

  std::vector<uint32_t> added;
  std::vector<v1::CommitInfo> commits;

 private:
  const std::shared_ptr<const store::Layout> layout_;
  const std::string directory_ = "/fake";
  const std::string uuid_ = std::string(32, '0');
  std::vector<uint32_t> index_;
  mutable absl::Mutex mutex_;
  std::vector<std::shared_ptr<const store::PinnedCommit>> pins_ ABSL_GUARDED_BY(mutex_);
};

// What a pipeline did and stands at, kept outside it so that it outlives sessions, as a disk does.
struct FakeDisk {
  absl::Mutex mutex;
  std::optional<pipeline::Position> applied ABSL_GUARDED_BY(mutex);
  uint64_t committed ABSL_GUARDED_BY(mutex) = 0;
  std::vector<std::string> calls ABSL_GUARDED_BY(mutex);  // "step 1", "materialize", "drain", ...
  bool hold ABSL_GUARDED_BY(mutex) = false;               // calls wait until it is false
  bool in_step ABSL_GUARDED_BY(mutex) = false;
  bool fail_next ABSL_GUARDED_BY(mutex) = false;
  std::vector<uint32_t> added ABSL_GUARDED_BY(mutex);
  pipeline::ReadParameters last_read ABSL_GUARDED_BY(mutex);
  pipeline::WriteParameters last_write ABSL_GUARDED_BY(mutex);
  std::vector<uint64_t> t ABSL_GUARDED_BY(mutex);  // empty: the sequence

  void Hold();
  void Release();
  void AwaitStep();  // until one is running
  int Count(const std::string& call);
};

// The rules of a StatePipeline without any state: positions move, nothing is computed.
class FakePipeline : public pipeline::StatePipeline {
 public:
  FakePipeline(std::shared_ptr<FakeDisk> disk, std::shared_ptr<const store::Layout> layout);

  const store::Store& store() const override;
  std::optional<pipeline::Position> applied() const override;
  std::string applied_blob() const override { return ""; }
  std::vector<uint64_t> applied_t() const override;
  void Attach(pipeline::Bindings bindings) override;
  void Detach() override { Note("detach"); }
  absl::StatusOr<v1::StepStatistics> Step(const pipeline::StepParameters& parameters) override;
  absl::Status Skip(uint64_t sequence, const std::string& step_id,
                    const std::string& blob) override;
  absl::StatusOr<v1::CommitInfo> Flush(uint64_t sequence) override;
  absl::StatusOr<v1::CommitInfo> Refresh(const pipeline::RefreshParameters& parameters) override;
  absl::Status Materialize(const std::vector<bool>& tensors) override;
  absl::StatusOr<v1::CommitInfo> Rollback(uint64_t sequence) override;
  absl::Status Read(const pipeline::ReadParameters& parameters) override;
  absl::StatusOr<v1::CommitInfo> Write(const pipeline::WriteParameters& parameters) override;
  absl::StatusOr<std::vector<pipeline::TensorDigest>> Digest(
      const std::vector<bool>& tensors) override;
  absl::StatusOr<std::shared_ptr<const store::PinnedCommit>> Pin(
      const store::PinParameters& parameters) override;
  absl::Status Unpin(const std::string& id) override;
  void Abort(absl::Status status) override;
  absl::Status Drain() override;
  pipeline::PipelineStatus Status() const override;

 private:
  void Note(const std::string& call) const;
  // Waits while the disk holds; the status that it was aborted with.
  absl::Status WaitWhileHeld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(disk_->mutex);
  v1::CommitInfo Commit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(disk_->mutex);

  const std::shared_ptr<FakeDisk> disk_;
  mutable FakeStore store_;
  absl::Status aborted_ ABSL_GUARDED_BY(disk_->mutex);
};

// Opens every store over one disk.
class FakeOpener : public StoreOpener {
 public:
  FakeOpener();
  absl::StatusOr<OpenedStore> Open(const v1::OpenRequest& request, uid_t owner) override;

  const std::shared_ptr<FakeDisk> disk = std::make_shared<FakeDisk>();
  std::string device = "host";
  device::MemoryImporter* importer = nullptr;  // of the device
  const std::shared_ptr<const store::Layout> layout;
};

// A ring that carries nothing; `closed` outlives it.
MakeRing MakeFakeRing(std::shared_ptr<std::atomic<bool>> closed);

// Two tensors of one member.
v1::OpenRequest FakeOpenRequest(const std::string& job = "job");

}  // namespace moment::session
