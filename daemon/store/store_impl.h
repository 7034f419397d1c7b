#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/store/commit_files.h"
#include "daemon/store/faults.h"
#include "daemon/store/file_table.h"
#include "daemon/store/reservation.h"
#include "daemon/store/store.h"

namespace moment::store {

// What Open found and made.
struct StoreParts {
  Environment environment;
  StoreFaults faults;
  std::string directory;
  std::string uuid;
  uint64_t commit_every = 1;
  uint64_t blob_limit_bytes = 0;
  uint32_t max_pins = 0;
  std::shared_ptr<const Layout> layout;
  std::vector<uint32_t> tensor_index;
  std::unique_ptr<CommitFiles> commit_files;
  std::unique_ptr<Reservation> reservation;
  std::shared_ptr<const State> newest;
  std::vector<std::string> warnings;
};

// Locks, in the order in which they are taken: sweep_mutex_ (one Sweep at a time), commit_mutex_ (a
// commit from its tables to its record; a pin), disk_mutex_ (whoever reads or writes commit files,
// or makes files), state_mutex_ (what is in memory; never held during I/O).
class StoreImpl final : public Store {
 public:
  explicit StoreImpl(StoreParts parts);

  const std::string& directory() const override { return directory_; }
  const std::string& uuid() const override { return uuid_; }
  std::shared_ptr<const Layout> layout() const override { return layout_; }
  const std::vector<uint32_t>& tensor_index() const override { return tensor_index_; }
  std::vector<uint32_t> added_tensors() const override;
  uint64_t reserved_bytes() const override;
  std::vector<std::string> warnings() const override { return warnings_; }
  std::shared_ptr<const State> newest() const override;
  std::vector<v1::CommitInfo> live() const override;

  absl::Status Drop(uint64_t sequence) override;
  absl::StatusOr<std::unique_ptr<Mutation>> Begin(const State* base,
                                                  const std::vector<bool>& rewritten,
                                                  const std::vector<bool>& moments_zero) override;
  absl::Status Commit(std::unique_ptr<Mutation> mutation, const State& state) override;
  absl::Status MarkDue() override;
  absl::StatusOr<std::shared_ptr<const State>> Rollback(uint64_t sequence) override;

  absl::StatusOr<std::shared_ptr<const PinnedCommit>> Pin(const PinParameters& parameters) override;
  absl::Status Unpin(const std::string& id) override;
  std::vector<std::shared_ptr<const PinnedCommit>> pins() const override;
  uint64_t HeldBytes(const PinnedCommit& pin) const override;
  absl::StatusOr<std::vector<std::unique_ptr<io::File>>> OpenPinned(const std::string& id,
                                                                    uint32_t first,
                                                                    uint32_t count) const override;
  absl::Status Sweep() override;
  bool wants_sweep() const override;

 private:
  absl::Status CheckOpen() const;
  // Latches the first failure: the store takes no more changes. Returns `status`.
  absl::Status Latch(absl::Status status);
  uint64_t NextId();
  bool HasDead() const;
  absl::Status EraseDead();
  // After the records changed.
  void Publish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(disk_mutex_);

  absl::Status CheckBegin(const State* base, const std::vector<bool>& rewritten,
                          const std::vector<bool>& moments_zero) const;
  absl::StatusOr<std::vector<FileTable::Lease>> TakeFiles(const std::vector<bool>& rewritten,
                                                          uint64_t id);

  absl::Status CheckCommit(const State& state) const;
  absl::Status CheckImages(const State& state) const;
  bool KnowsLayout(uint64_t digest) const;
  absl::StatusOr<v1::CommitRecord> MakeRecord(const State& state);
  absl::Status CommitState(const State& state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_);
  absl::Status MakeDurable(const State& state, const v1::CommitRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_);
  absl::Status WriteTables(const std::vector<BucketImage*>& images, const Layout& layout);
  absl::Status SyncData(const std::vector<BucketImage*>& images);
  absl::Status WriteRecord(const State& state, const v1::CommitRecord& record);
  std::vector<BucketImage*> UncommittedImages(const State& state) const;
  absl::StatusOr<std::shared_ptr<State>> LoadCommit(uint64_t sequence);

  absl::StatusOr<std::shared_ptr<const PinnedCommit>> TryPin(const PinParameters& parameters);
  std::shared_ptr<const PinnedCommit> FindPin(const std::string& id) const;
  absl::Status CheckPin(const PinnedCommit& pin) const;
  absl::Status MakeDurablePin(const PinnedCommit& pin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(commit_mutex_);
  absl::Status MakePin(const PinnedCommit& pin, const v1::CommitRecord& record)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(disk_mutex_);
  absl::Status MarkPinned(const PinnedCommit& pin);
  absl::Status SweepPins() ABSL_EXCLUSIVE_LOCKS_REQUIRED(sweep_mutex_);
  absl::Status RemoveFiles(const std::vector<FileTable::FileName>& names) const;

  const Environment environment_;
  const StoreFaults faults_;
  const std::string directory_;
  const std::string uuid_;
  const uint64_t commit_every_;
  const uint64_t blob_limit_bytes_;
  const uint32_t max_pins_;
  const std::shared_ptr<const Layout> layout_;
  const std::vector<uint32_t> tensor_index_;
  const std::vector<std::string> warnings_;
  const std::shared_ptr<FileTable> files_;

  absl::Mutex sweep_mutex_ ABSL_ACQUIRED_BEFORE(commit_mutex_);
  absl::Mutex commit_mutex_ ABSL_ACQUIRED_BEFORE(disk_mutex_);
  mutable absl::Mutex disk_mutex_ ABSL_ACQUIRED_BEFORE(state_mutex_);
  const std::unique_ptr<CommitFiles> commit_files_ ABSL_PT_GUARDED_BY(disk_mutex_);
  const std::unique_ptr<Reservation> reservation_ ABSL_PT_GUARDED_BY(disk_mutex_);

  mutable absl::Mutex state_mutex_;
  std::shared_ptr<const State> newest_ ABSL_GUARDED_BY(state_mutex_);
  std::vector<RecordSummary> records_ ABSL_GUARDED_BY(state_mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(state_mutex_);
  uint64_t last_id_ ABSL_GUARDED_BY(state_mutex_) = 0;
  std::vector<std::shared_ptr<const PinnedCommit>> pins_ ABSL_GUARDED_BY(state_mutex_);
  std::vector<std::string> dropped_pins_ ABSL_GUARDED_BY(state_mutex_);  // ids still on disk
  uint64_t commit_files_bytes_ = 0;
};

}  // namespace moment::store
