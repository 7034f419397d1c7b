#include "daemon/store/commit_files.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "daemon/store/file_access.h"

namespace moment::store {
namespace {

constexpr uint64_t kBlockBytes = base::kIoAlignment;

absl::StatusOr<CopyState> ReadCopy(io::IoEngine& engine, io::File& file, uint64_t offset,
                                   uint64_t size_bytes, RecordHeader& header,
                                   v1::CommitRecord& record) {
  MOMENT_ASSIGN_OR_RETURN(const base::AlignedBuffer head,
                          ReadAligned(engine, file, offset, kBlockBytes));
  const CopyState state = DecodeRecordHeader(head.span(), header);
  if (state != CopyState::kValid) {
    return state;
  }
  if (size_bytes < 2 * header.room) {
    return absl::DataLossError(absl::StrCat(file.path(), " at offset ", size_bytes,
                                            ": the commit file ends here, ", 2 * header.room,
                                            " bytes were written"));
  }
  if (offset != 0 && offset != header.room) {
    return CopyState::kDamaged;
  }
  const uint64_t used = kRecordHeaderBytes + header.body_bytes;
  MOMENT_ASSIGN_OR_RETURN(const base::AlignedBuffer whole,
                          ReadAligned(engine, file, offset, base::RoundUp(used, kBlockBytes)));
  return DecodeRecordBody(header, whole.span().subspan(kRecordHeaderBytes, header.body_bytes),
                          record);
}

// A new commit file, blank; its bytes are durable, its name is not.
absl::StatusOr<std::unique_ptr<io::File>> MakeBlank(const Environment& environment,
                                                    const std::string& path, uint64_t room) {
  MOMENT_ASSIGN_OR_RETURN(
      std::unique_ptr<io::File> file,
      environment.files->Open(path, {.mode = io::OpenMode::kCreate,
                                     .direct = environment.direct_io,
                                     .permissions = environment.file_permissions}));
  MOMENT_RETURN_IF_ERROR(file->Allocate(2 * room));
  MOMENT_RETURN_IF_ERROR(io::Sync(*environment.engine, *file));
  return file;
}

}  // namespace

RecordSummary Summarize(const v1::CommitRecord& record) {
  RecordSummary summary;
  summary.facts = {record.id(), record.sequence(), record.due()};
  summary.step_id = record.step_id();
  summary.unix_time_ns = record.unix_time_ns();
  summary.layout_digest = record.layout_digest();
  summary.commit_every = record.commit_every();
  summary.buckets.assign(record.buckets().begin(), record.buckets().end());
  return summary;
}

v1::CommitInfo InfoOf(const RecordSummary& record) {
  v1::CommitInfo info;
  info.set_id(record.facts.id);
  info.set_sequence(record.facts.sequence);
  info.set_due(record.facts.due);
  info.set_step_id(record.step_id);
  info.set_unix_time_ns(record.unix_time_ns);
  return info;
}

absl::StatusOr<CommitFileContent> ReadCommitFile(io::IoEngine& engine, io::File& file) {
  CommitFileContent content;
  MOMENT_ASSIGN_OR_RETURN(content.size_bytes, file.Size());
  if (content.size_bytes < 2 * kBlockBytes) {
    return absl::DataLossError(absl::StrCat(file.path(), " at offset ", content.size_bytes,
                                            ": the commit file ends here, at least ",
                                            2 * kBlockBytes, " bytes were written"));
  }
  content.room = base::RoundDown(content.size_bytes / 2, kBlockBytes);
  RecordHeader header;
  v1::CommitRecord records[2];
  MOMENT_ASSIGN_OR_RETURN(content.copies[0],
                          ReadCopy(engine, file, 0, content.size_bytes, header, records[0]));
  MOMENT_ASSIGN_OR_RETURN(content.copies[1], ReadCopy(engine, file, content.room,
                                                      content.size_bytes, header, records[1]));
  content.record = std::move(records[content.copies[0] == CopyState::kValid ? 0 : 1]);
  return content;
}

absl::Status CheckNeverCommitted(const std::vector<CommitFileTrace>& files) {
  const auto blank = [](const CommitFileTrace& file) {
    return file.copies[0] == CopyState::kBlank && file.copies[1] == CopyState::kBlank;
  };
  if (std::count_if(files.begin(), files.end(), blank) + 1 >=
      static_cast<std::ptrdiff_t>(files.size())) {
    return absl::OkStatus();
  }
  const auto damaged = [](const CommitFileTrace& file) {
    return file.copies[0] == CopyState::kDamaged || file.copies[1] == CopyState::kDamaged;
  };
  const auto first = std::find_if(files.begin(), files.end(), damaged);
  const CommitFileTrace& named = first == files.end() ? files.front() : *first;
  const uint64_t offset =
      named.copies[0] == CopyState::kDamaged || first == files.end() ? 0 : named.room;
  return absl::DataLossError(absl::StrCat(
      named.path, " at offset ", offset,
      ": no whole copy of a record, here or in the other commit ",
      "files, but the store has had commits; put the files back as they were, or start over with "
      "resume=never"));
}

absl::StatusOr<CommitFiles> CommitFiles::Create(const Environment& environment,
                                                const std::string& directory, uint64_t room,
                                                const StoreFaults& faults) {
  CommitFiles result(environment, faults);
  for (int i = 0; i < kCommitFiles; ++i) {
    Entry& entry = result.entries_[static_cast<size_t>(i)];
    entry.path = Join(directory, CommitFileName(i));
    entry.room = room;
    MOMENT_RETURN_IF_ERROR(UnlinkIfThere(*environment.files, entry.path));
    MOMENT_ASSIGN_OR_RETURN(entry.file, MakeBlank(environment, entry.path, room));
  }
  return result;
}

absl::Status CommitFiles::LoadEntry(const std::string& path, const std::string& store_uuid,
                                    Entry& entry) {
  entry.path = path;
  absl::StatusOr<std::unique_ptr<io::File>> file = environment_.files->Open(
      path, {.mode = io::OpenMode::kReadWrite, .direct = environment_.direct_io});
  if (absl::IsNotFound(file.status())) {
    return absl::DataLossError(absl::StrCat(path, " at offset 0: the commit file is missing"));
  }
  MOMENT_RETURN_IF_ERROR(file.status());
  entry.file = *std::move(file);
  MOMENT_ASSIGN_OR_RETURN(CommitFileContent content,
                          ReadCommitFile(*environment_.engine, *entry.file));
  entry.room = content.room;
  std::copy(std::begin(content.copies), std::end(content.copies), std::begin(entry.copies));
  if (!content.HasRecord()) {
    return absl::OkStatus();
  }
  if (content.record.store_uuid() != store_uuid) {
    return absl::DataLossError(absl::StrCat(path, " at offset 0: a record of store ",
                                            content.record.store_uuid(), ", this one is ",
                                            store_uuid));
  }
  entry.record = Summarize(content.record);
  return absl::OkStatus();
}

absl::StatusOr<CommitFiles> CommitFiles::Load(const Environment& environment,
                                              const std::string& directory,
                                              const std::string& store_uuid,
                                              const StoreFaults& faults) {
  CommitFiles result(environment, faults);
  for (int i = 0; i < kCommitFiles; ++i) {
    Entry& entry = result.entries_[static_cast<size_t>(i)];
    MOMENT_RETURN_IF_ERROR(result.LoadEntry(Join(directory, CommitFileName(i)), store_uuid, entry));
    const bool damaged =
        entry.copies[0] == CopyState::kDamaged || entry.copies[1] == CopyState::kDamaged;
    if (damaged && entry.record.has_value()) {
      const uint64_t offset = entry.copies[0] == CopyState::kDamaged ? 0 : entry.room;
      result.warnings_.push_back(
          absl::StrCat(entry.path, " at offset ", offset, ": one copy of the record of id ",
                       entry.record->facts.id, " is damaged; the other is used and rewritten"));
    } else if (damaged) {
      result.warnings_.push_back(absl::StrCat(entry.path, " at offset 0: no whole copy of a record",
                                              "; taken as a commit that was never acknowledged"));
    }
  }
  return result;
}

std::vector<RecordSummary> CommitFiles::Records() const {
  std::vector<RecordSummary> records;
  absl::flat_hash_set<uint64_t> ids;
  for (const Entry& entry : entries_) {
    if (entry.record.has_value() && ids.insert(entry.record->facts.id).second) {
      records.push_back(*entry.record);
    }
  }
  return records;
}

std::vector<RecordFacts> CommitFiles::Facts() const {
  std::vector<RecordFacts> facts;
  for (const RecordSummary& record : Records()) {
    facts.push_back(record.facts);
  }
  return facts;
}

absl::Status CommitFiles::CheckNeverCommitted() const {
  std::vector<CommitFileTrace> files;
  for (const Entry& entry : entries_) {
    files.push_back({entry.path, entry.room, {entry.copies[0], entry.copies[1]}});
  }
  return store::CheckNeverCommitted(files);
}

absl::Status CommitFiles::Repair() {
  std::vector<io::File*> files;
  for (const Entry& entry : entries_) {
    files.push_back(entry.file.get());
  }
  // A process that was killed before its sync leaves records and erasures that only the caches
  // hold.
  MOMENT_RETURN_IF_ERROR(SyncAll(*environment_.engine, files));
  std::vector<Entry*> erase;
  absl::flat_hash_set<uint64_t> ids;
  // Records in files with more room first: they are those that a growth moved.
  std::vector<Entry*> by_room;
  for (Entry& entry : entries_) {
    by_room.push_back(&entry);
  }
  std::stable_sort(by_room.begin(), by_room.end(),
                   [](const Entry* a, const Entry* b) { return a->room > b->room; });
  for (Entry* entry : by_room) {
    const bool whole = entry->copies[0] == entry->copies[1];
    if (entry->record.has_value() && !ids.insert(entry->record->facts.id).second) {
      erase.push_back(entry);
    } else if (entry->record.has_value() && !whole) {
      MOMENT_ASSIGN_OR_RETURN(const v1::CommitRecord record, ReadEntry(*entry));
      MOMENT_RETURN_IF_ERROR(WriteCopies(*entry, record));
      MOMENT_RETURN_IF_ERROR(SyncEntry(*entry));
    } else if (!entry->record.has_value() && !entry->erased()) {
      erase.push_back(entry);
    }
  }
  return EraseEntries(erase);
}

absl::Status CommitFiles::Erase(const std::vector<uint64_t>& ids) {
  std::vector<Entry*> entries;
  for (Entry& entry : entries_) {
    if (entry.record.has_value() &&
        std::find(ids.begin(), ids.end(), entry.record->facts.id) != ids.end()) {
      entries.push_back(&entry);
    }
  }
  return EraseEntries(entries);
}

absl::Status CommitFiles::EraseDead() {
  const std::vector<RecordFacts> facts = Facts();
  const std::vector<bool> live = LiveRecords(facts);
  std::vector<uint64_t> dead;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (!live[i]) {
      dead.push_back(facts[i].id);
    }
  }
  return Erase(dead);
}

absl::Status CommitFiles::EraseEntries(const std::vector<Entry*>& entries) {
  for (Entry* entry : entries) {
    if (!faults_.reuse_before_erase) {
      MOMENT_RETURN_IF_ERROR(WriteErasure(*entry));
    }
  }
  for (Entry* entry : entries) {
    if (!faults_.reuse_before_erase && !faults_.erase_without_sync) {
      MOMENT_RETURN_IF_ERROR(SyncEntry(*entry));
    }
    entry->record.reset();
  }
  return absl::OkStatus();
}

// With the first commit: from then on, until it starts over, a store has no blank file.
absl::Status CommitFiles::MarkBlank() {
  std::vector<Entry*> blank;
  for (Entry& entry : entries_) {
    if (entry.copies[0] == CopyState::kBlank && entry.copies[1] == CopyState::kBlank) {
      blank.push_back(&entry);
    }
  }
  return EraseEntries(blank);
}

absl::Status CommitFiles::CheckWrite(const v1::CommitRecord& record) {
  MOMENT_RETURN_IF_ERROR(CheckRecordFits(record, room()));
  if (FindFree(room()) == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(ParentOf(entries_[0].path),
                     ": no commit file is free; a commit comes after the arrival of its step"));
  }
  return absl::OkStatus();
}

absl::Status CommitFiles::Write(const v1::CommitRecord& record) {
  MOMENT_RETURN_IF_ERROR(CheckWrite(record));
  Entry& entry = *FindFree(room());
  MOMENT_RETURN_IF_ERROR(WriteCopies(entry, record));
  if (faults_.mark_before_sync) {
    MOMENT_RETURN_IF_ERROR(MarkBlank());
  }
  MOMENT_RETURN_IF_ERROR(SyncEntry(entry));
  entry.record = Summarize(record);
  return MarkBlank();
}

absl::StatusOr<v1::CommitRecord> CommitFiles::Read(uint64_t id) const {
  for (const Entry& entry : entries_) {
    if (entry.record.has_value() && entry.record->facts.id == id) {
      return ReadEntry(entry);
    }
  }
  return absl::NotFoundError(absl::StrCat("no record of id ", id));
}

absl::StatusOr<v1::CommitRecord> CommitFiles::ReadEntry(const Entry& entry) const {
  MOMENT_ASSIGN_OR_RETURN(CommitFileContent content,
                          ReadCommitFile(*environment_.engine, *entry.file));
  if (!content.HasRecord()) {
    return absl::DataLossError(
        absl::StrCat(entry.path, " at offset 0: both copies of the record are damaged"));
  }
  return std::move(content.record);
}

absl::Status CommitFiles::Grow(uint64_t room) {
  while (Entry* entry = FindTooSmall(room, true)) {
    MOMENT_RETURN_IF_ERROR(GrowFree(*entry, room));
  }
  while (Entry* entry = FindTooSmall(room, false)) {
    MOMENT_ASSIGN_OR_RETURN(const v1::CommitRecord record, ReadEntry(*entry));
    Entry* target = FindFree(room);
    if (target == nullptr) {
      return absl::FailedPreconditionError("no commit file is free to move a record to");
    }
    MOMENT_RETURN_IF_ERROR(WriteCopies(*target, record));
    MOMENT_RETURN_IF_ERROR(SyncEntry(*target));
    target->record = entry->record;
    MOMENT_RETURN_IF_ERROR(EraseEntries({entry}));
    MOMENT_RETURN_IF_ERROR(GrowFree(*entry, room));
  }
  return absl::OkStatus();
}

// By another file in its place: an allocation that a crash cuts leaves any length behind. It is
// marked as one of a store that has commits before it has its name.
absl::Status CommitFiles::GrowFree(Entry& entry, uint64_t room) {
  io::FileSystem& files = *environment_.files;
  const std::string temporary = Join(ParentOf(entry.path), kCommitFileTemporaryName);
  MOMENT_RETURN_IF_ERROR(UnlinkIfThere(files, temporary));
  MOMENT_ASSIGN_OR_RETURN(entry.file, MakeBlank(environment_, temporary, room));
  entry.room = room;
  std::fill(std::begin(entry.copies), std::end(entry.copies), CopyState::kBlank);
  MOMENT_RETURN_IF_ERROR(EraseEntries({&entry}));
  MOMENT_RETURN_IF_ERROR(files.Rename(temporary, entry.path));
  MOMENT_RETURN_IF_ERROR(files.SyncDirectory(ParentOf(entry.path)));
  MOMENT_ASSIGN_OR_RETURN(entry.file, files.Open(entry.path, {.mode = io::OpenMode::kReadWrite,
                                                              .direct = environment_.direct_io}));
  return absl::OkStatus();
}

absl::Status CommitFiles::WriteCopies(Entry& entry, const v1::CommitRecord& record) {
  MOMENT_ASSIGN_OR_RETURN(const std::string encoded, EncodeRecord(record, entry.room));
  MOMENT_RETURN_IF_ERROR(WriteAligned(*environment_.engine, *entry.file, 0, encoded));
  if (!faults_.single_record_copy) {
    MOMENT_RETURN_IF_ERROR(WriteAligned(*environment_.engine, *entry.file, entry.room, encoded));
  }
  entry.copies[0] = entry.copies[1] = CopyState::kValid;
  return absl::OkStatus();
}

absl::Status CommitFiles::WriteErasure(Entry& entry) {
  const std::string erased = EncodeErased(entry.room);
  MOMENT_RETURN_IF_ERROR(WriteAligned(*environment_.engine, *entry.file, 0, erased));
  MOMENT_RETURN_IF_ERROR(WriteAligned(*environment_.engine, *entry.file, entry.room, erased));
  entry.copies[0] = entry.copies[1] = CopyState::kErased;
  return absl::OkStatus();
}

absl::Status CommitFiles::SyncEntry(Entry& entry) {
  return io::Sync(*environment_.engine, *entry.file);
}

CommitFiles::Entry* CommitFiles::FindFree(uint64_t room) {
  for (Entry& entry : entries_) {
    if (!entry.record.has_value() && entry.room >= room) {
      return &entry;
    }
  }
  return nullptr;
}

CommitFiles::Entry* CommitFiles::FindTooSmall(uint64_t room, bool free) {
  for (Entry& entry : entries_) {
    if (entry.record.has_value() != free && entry.room < room) {
      return &entry;
    }
  }
  return nullptr;
}

uint64_t CommitFiles::room() const {
  return std::min_element(entries_.begin(), entries_.end(),
                          [](const Entry& a, const Entry& b) { return a.room < b.room; })
      ->room;
}

uint64_t CommitFiles::size_bytes() const {
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) {
    bytes += 2 * entry.room;
  }
  return bytes;
}

}  // namespace moment::store
