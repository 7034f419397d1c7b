#include "daemon/store/offline.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/commit_files.h"
#include "daemon/store/commit_rules.h"
#include "daemon/store/names.h"
#include "daemon/store/recovery.h"

namespace moment::store {
namespace {

absl::StatusOr<CommitFileContent> ReadCommitFileAt(io::FileSystem& files, io::IoEngine& engine,
                                                   const std::string& path) {
  const absl::StatusOr<std::unique_ptr<io::File>> file =
      files.Open(path, {.mode = io::OpenMode::kRead});
  if (absl::IsNotFound(file.status())) {
    return absl::DataLossError(absl::StrCat(path, " at offset 0: the commit file is missing"));
  }
  MOMENT_RETURN_IF_ERROR(file.status());
  return ReadCommitFile(engine, **file);
}

absl::StatusOr<std::vector<v1::CommitRecord>> ReadRecords(io::FileSystem& files,
                                                          io::IoEngine& engine,
                                                          const std::string& directory) {
  std::vector<v1::CommitRecord> records;
  std::vector<CommitFileTrace> traces(kCommitFiles);
  absl::flat_hash_set<uint64_t> ids;
  for (int i = 0; i < kCommitFiles; ++i) {
    const std::string path = Join(directory, CommitFileName(i));
    MOMENT_ASSIGN_OR_RETURN(CommitFileContent content, ReadCommitFileAt(files, engine, path));
    traces[static_cast<size_t>(i)] = {path, content.room, {content.copies[0], content.copies[1]}};
    if (content.HasRecord() && ids.insert(content.record.id()).second) {
      records.push_back(std::move(content.record));
    }
  }
  if (records.empty()) {
    MOMENT_RETURN_IF_ERROR(CheckNeverCommitted(traces));
  }
  return records;
}

std::vector<v1::CommitRecord> LiveOnes(std::vector<v1::CommitRecord> records) {
  std::vector<RecordFacts> facts;
  for (const v1::CommitRecord& record : records) {
    facts.push_back({record.id(), record.sequence(), record.due()});
  }
  const std::vector<bool> live = LiveRecords(facts);
  std::vector<v1::CommitRecord> kept;
  for (size_t i = 0; i < records.size(); ++i) {
    if (live[i]) {
      kept.push_back(std::move(records[i]));
    }
  }
  std::sort(kept.begin(), kept.end(), [](const auto& a, const auto& b) { return a.id() > b.id(); });
  return kept;
}

// The layout of a store that has no commit yet: the only one there is.
absl::StatusOr<std::shared_ptr<const Layout>> AnyLayout(io::FileSystem& files, io::IoEngine& engine,
                                                        const std::string& directory) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  for (const std::string& name : names) {
    if (const auto digest = ParseLayoutFileName(name); digest.has_value()) {
      return LoadLayout(files, engine, directory, *digest);
    }
  }
  return std::shared_ptr<const Layout>();
}

}  // namespace

absl::StatusOr<OfflineStore> ReadOffline(io::FileSystem& files, io::IoEngine& engine,
                                         const std::string& directory) {
  OfflineStore result;
  MOMENT_ASSIGN_OR_RETURN(result.store, LoadStoreFile(files, engine, directory));
  MOMENT_ASSIGN_OR_RETURN(std::vector<v1::CommitRecord> records,
                          ReadRecords(files, engine, directory));
  for (const v1::CommitRecord& record : records) {
    if (record.store_uuid() != result.store.store_uuid()) {
      return absl::DataLossError(absl::StrCat(directory, " at offset 0: the record of id ",
                                              record.id(), " is of store ", record.store_uuid(),
                                              ", this one is ", result.store.store_uuid()));
    }
  }
  result.commits = LiveOnes(std::move(records));
  if (result.commits.empty()) {
    MOMENT_ASSIGN_OR_RETURN(result.layout, AnyLayout(files, engine, directory));
  } else {
    MOMENT_ASSIGN_OR_RETURN(result.layout, LoadLayout(files, engine, directory,
                                                      result.commits.front().layout_digest()));
  }
  return result;
}

}  // namespace moment::store
