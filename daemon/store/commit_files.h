#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/store/commit_record.h"
#include "daemon/store/commit_rules.h"
#include "daemon/store/faults.h"
#include "daemon/store/names.h"
#include "daemon/store/store.h"

namespace moment::store {

// What stays in memory of a record: all but t, groups and blob.
struct RecordSummary {
  RecordFacts facts;
  std::string step_id;
  int64_t unix_time_ns = 0;
  uint64_t layout_digest = 0;
  uint64_t commit_every = 0;
  std::vector<v1::BucketImage> buckets;
};
RecordSummary Summarize(const v1::CommitRecord& record);
v1::CommitInfo InfoOf(const RecordSummary& record);

// One commit file as it was read.
struct CommitFileContent {
  uint64_t size_bytes = 0;
  uint64_t room = 0;
  CopyState copies[2] = {CopyState::kBlank, CopyState::kBlank};
  v1::CommitRecord record;  // if a copy is valid
  bool HasRecord() const {
    return copies[0] == CopyState::kValid || copies[1] == CopyState::kValid;
  }
};

// What tells whether a store without a whole record ever had one.
struct CommitFileTrace {
  std::string path;
  uint64_t room = 0;
  CopyState copies[2] = {CopyState::kBlank, CopyState::kBlank};
};
// Of the files of a store that has no whole record: OK if no commit was ever acknowledged. The
// first record goes into one file, and only when it is durable are the others marked: so before
// that a crash leaves at most one file that is not blank. DATA_LOSS naming path and offset
// otherwise.
absl::Status CheckNeverCommitted(const std::vector<CommitFileTrace>& files);

// DATA_LOSS naming path and offset for a file that no crash leaves behind: shorter than two blocks,
// or than the room its record was written for.
absl::StatusOr<CommitFileContent> ReadCommitFile(io::IoEngine& engine, io::File& file);

// The four commit files of a store: which record each holds. Not thread-safe: the store serialises
// its use.
class CommitFiles {
 public:
  // Four new, empty files (old ones of these names are removed), synced; their names are durable
  // after a sync of the directory.
  static absl::StatusOr<CommitFiles> Create(const Environment& environment,
                                            const std::string& directory, uint64_t room,
                                            const StoreFaults& faults = {});
  // Reads what is there. DATA_LOSS for a missing or cut file, or a record of another store.
  static absl::StatusOr<CommitFiles> Load(const Environment& environment,
                                          const std::string& directory,
                                          const std::string& store_uuid,
                                          const StoreFaults& faults = {});

  // The records there are, of one id only once.
  std::vector<RecordSummary> Records() const;
  std::vector<RecordFacts> Facts() const;
  // What recovery found worth telling.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Of files without a whole record: see above.
  absl::Status CheckNeverCommitted() const;

  // Of a store that has a record: makes durable what was read, restores a record's damaged copy,
  // erases what is left of records that were never acknowledged and the second of two records of
  // one id, marks blank files.
  absl::Status Repair();
  // Erases the records with these ids and syncs: after it they are gone whatever happens.
  absl::Status Erase(const std::vector<uint64_t>& ids);
  // Erases the records that are no longer live.
  absl::Status EraseDead();
  // INVALID_ARGUMENT if the record exceeds the room, FAILED_PRECONDITION if no file is free.
  absl::Status CheckWrite(const v1::CommitRecord& record);
  // Makes the record, which passes CheckWrite, durable in a free file.
  absl::Status Write(const v1::CommitRecord& record);
  // The whole record of an id, read from disk.
  absl::StatusOr<v1::CommitRecord> Read(uint64_t id) const;
  // Gives every file at least this room, moving records one by one through grown files. Each record
  // is on disk at every moment.
  absl::Status Grow(uint64_t room);

  uint64_t room() const;  // the smallest
  uint64_t size_bytes() const;

 private:
  struct Entry {
    std::string path;
    std::unique_ptr<io::File> file;
    uint64_t room = 0;
    CopyState copies[2] = {CopyState::kBlank, CopyState::kBlank};
    std::optional<RecordSummary> record;
    bool erased() const {
      return copies[0] == CopyState::kErased && copies[1] == CopyState::kErased;
    }
  };

  CommitFiles(const Environment& environment, const StoreFaults& faults)
      : environment_(environment), faults_(faults) {}

  absl::Status LoadEntry(const std::string& path, const std::string& store_uuid, Entry& entry);
  absl::Status WriteCopies(Entry& entry, const v1::CommitRecord& record);
  absl::Status WriteErasure(Entry& entry);
  absl::Status SyncEntry(Entry& entry);
  absl::Status EraseEntries(const std::vector<Entry*>& entries);
  absl::Status MarkBlank();
  absl::Status GrowFree(Entry& entry, uint64_t room);
  absl::StatusOr<v1::CommitRecord> ReadEntry(const Entry& entry) const;
  Entry* FindFree(uint64_t room);
  Entry* FindTooSmall(uint64_t room, bool free);

  Environment environment_;
  StoreFaults faults_;
  std::array<Entry, kCommitFiles> entries_;
  std::vector<std::string> warnings_;
};

}  // namespace moment::store
