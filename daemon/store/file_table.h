#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/io/file_system.h"
#include "daemon/store/commit_files.h"

namespace moment::store {

inline constexpr int kImages = 3;  // writable files of a bucket that stepping needs

// Permission bits of a file that was once pinned and is never written again: it is not writable by
// its owner.
inline constexpr uint32_t kOwnerWriteBit = 0200;

// The data files of a store, by bucket: which are free to write. A file is free if it is writable,
// no record names it, no image that is still uncommitted holds a lease of it, and no uncommitted
// state takes it over. Thread-safe; never does I/O. Leases and holds keep the table alive.
class FileTable : public std::enable_shared_from_this<FileTable> {
 public:
  struct FileState {
    uint32_t number = 0;
    std::shared_ptr<io::File> file;
    uint64_t file_bytes = 0;
    bool writable = true;  // never pinned
    bool fresh = false;    // behind the header it reads as zero
  };

  struct Lease {
    uint32_t number = 0;
    std::shared_ptr<io::File> file;
    bool fresh = false;
    std::shared_ptr<void> hold;  // the file goes back when it is destroyed
  };

  explicit FileTable(uint32_t buckets) : buckets_(buckets) {}

  void Add(uint32_t bucket, FileState file);
  void Remove(uint32_t bucket, uint32_t number);
  std::shared_ptr<io::File> Find(uint32_t bucket, uint32_t number) const;
  std::vector<FileState> Files(uint32_t bucket) const;
  // Those of Files that nothing needs: no record, no lease, no uncommitted state.
  std::vector<FileState> Unused(uint32_t bucket) const;
  // A pin holds the file: it is never written again.
  void SetPinned(uint32_t bucket, uint32_t number);
  // Forgets files that nothing needs and returns them, for their names to be removed: those once
  // pinned, and writable ones beyond three; never that with the highest number of its bucket, which
  // keeps numbers from being used again.
  struct FileName {
    uint32_t bucket = 0;
    uint32_t number = 0;
  };
  std::vector<FileName> TakeSurplus();
  bool HasSurplus() const;
  // The number that no file of the bucket had: above all there are and all that were reserved.
  uint32_t ReserveNumber(uint32_t bucket);

  // Takes a free file for the change `id`; fresh ones first. nullopt if there is none.
  std::optional<Lease> Take(uint32_t bucket, uint64_t id);
  // Is the file held for this change, and for no later one?
  bool IsLeased(uint32_t bucket, uint32_t number, uint64_t id) const;
  // Does a record name the file, as written by this id?
  bool IsNamed(uint32_t bucket, uint32_t number, uint64_t id) const;
  // An uncommitted state takes over a file as this id wrote it: until the result is destroyed it is
  // not free, whatever becomes of the record that names it.
  std::shared_ptr<void> TakeOver(uint32_t bucket, uint32_t number, uint64_t id);
  bool IsTakenOver(uint32_t bucket, uint32_t number, uint64_t id) const;
  // After a change of the records: these are all there are.
  void SetRecords(const std::vector<RecordSummary>& records);
  // A record names the file: the lease of its image means nothing more.
  void EndLease(uint32_t bucket, uint32_t number);

  uint64_t size_bytes() const;

 private:
  struct Entry {
    FileState state;
    bool named = false;
    uint64_t named_id = 0;   // that wrote what the records name
    uint64_t lease = 0;      // 0: none
    uint64_t leased_by = 0;  // id
    uint64_t takers = 0;     // uncommitted states that take it over
    uint64_t taken_id = 0;   // that wrote what they take over

    bool unused() const { return !named && lease == 0 && takers == 0; }
  };
  struct Bucket {
    std::vector<Entry> entries;
    uint32_t next_number = 0;
  };

  static std::vector<uint32_t> SurplusOf(const Bucket& bucket);
  static void NameBy(const std::vector<RecordSummary>& records, size_t bucket, Entry& entry);
  void Release(uint32_t bucket, uint32_t number, uint64_t lease);
  void ReleaseTaken(uint32_t bucket, uint32_t number);
  Entry* FindEntry(uint32_t bucket, uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const Entry* FindEntry(uint32_t bucket, uint32_t number) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::vector<Bucket> buckets_ ABSL_GUARDED_BY(mutex_);
  uint64_t last_lease_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace moment::store
