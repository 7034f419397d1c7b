#include "daemon/store/inspect.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/bucket_file.h"
#include "daemon/store/names.h"
#include "daemon/store/offline.h"
#include "daemon/store/pin_report.h"

namespace moment::store {
namespace {

// Ids of the commits that name a file of a bucket.
std::vector<uint64_t> NamingCommits(const std::vector<v1::CommitRecord>& commits, int bucket,
                                    uint32_t file) {
  std::vector<uint64_t> ids;
  for (const v1::CommitRecord& commit : commits) {
    if (bucket < commit.buckets_size() && commit.buckets(bucket).file() == file) {
      ids.push_back(commit.id());
    }
  }
  return ids;
}

absl::Status AddFile(io::FileSystem& files, const OfflineStore& store, int bucket,
                     const std::string& path, uint32_t number, std::set<uint64_t>& inodes,
                     v1::DescribeResponse& response) {
  const absl::StatusOr<io::FileInfo> stat = files.Stat(path);
  if (absl::IsNotFound(stat.status())) {
    return absl::OkStatus();  // nothing needed it: a live store sweeps such behind its steps
  }
  MOMENT_RETURN_IF_ERROR(stat.status());
  const io::FileInfo& info = *stat;
  inodes.insert(info.inode);
  v1::BucketFile* file = response.add_files();
  file->set_path(path);
  file->set_size_bytes(info.size_bytes);
  file->set_bucket(static_cast<uint32_t>(bucket));
  file->set_file(number);
  for (const uint64_t id : NamingCommits(store.commits, bucket, number)) {
    file->add_commits(id);
  }
  return absl::OkStatus();
}

// Files of one bucket, in the order of their numbers. A member's directory that is not there has
// none.
absl::Status AddFilesOf(io::FileSystem& files, const std::string& directory,
                        const OfflineStore& store, int bucket, std::set<uint64_t>& inodes,
                        v1::DescribeResponse& response) {
  const BucketGeometry& geometry = store.layout->buckets()[static_cast<size_t>(bucket)];
  const std::string member = MemberDirectory(directory, store.layout->proto(), geometry.member);
  const absl::StatusOr<std::vector<std::string>> names = files.List(member);
  if (absl::IsNotFound(names.status())) {
    return absl::OkStatus();
  }
  MOMENT_RETURN_IF_ERROR(names.status());
  std::map<uint32_t, std::string> found;
  for (const std::string& name : *names) {
    const std::optional<BucketFileNumbers> numbers = ParseBucketFileName(name);
    if (numbers.has_value() && numbers->bucket == geometry.number) {
      found.emplace(numbers->file, Join(member, name));
    }
  }
  for (const auto& [number, path] : found) {
    MOMENT_RETURN_IF_ERROR(AddFile(files, store, bucket, path, number, inodes, response));
  }
  return absl::OkStatus();
}

uint64_t SizeOf(io::FileSystem& files, const std::string& path) {
  const absl::StatusOr<io::FileInfo> info = files.Stat(path);
  return info.ok() ? info->size_bytes : 0;
}

void Summarize(io::FileSystem& files, const std::string& directory, const OfflineStore& store,
               v1::DescribeResponse& response) {
  v1::StoreSummary& summary = *response.mutable_summary();
  *summary.mutable_name() = store.store.name();
  summary.set_directory(directory);
  summary.set_store_uuid(store.store.store_uuid());
  summary.set_owner_uid(store.store.owner_uid());
  if (store.layout != nullptr) {
    summary.set_parameters(store.layout->parameters());
    summary.set_tensors(static_cast<uint64_t>(store.layout->proto().tensors_size()));
  }
  if (!store.commits.empty()) {
    summary.set_sequence(store.commits.front().sequence());
    summary.set_last_commit_unix_time_ns(store.commits.front().unix_time_ns());
  }
  uint64_t bytes = 0;
  for (const v1::BucketFile& file : response.files()) {
    bytes += file.size_bytes();
  }
  for (int i = 0; i < kCommitFiles; ++i) {
    bytes += SizeOf(files, Join(directory, CommitFileName(i)));
  }
  summary.set_disk_bytes(bytes);
}

absl::Status AddPins(io::FileSystem& files, io::IoEngine& engine, const std::string& directory,
                     const std::set<uint64_t>& inodes, v1::StoreSummary& summary) {
  MOMENT_ASSIGN_OR_RETURN(PinReport report, ReportPins(files, engine, directory, inodes));
  summary.set_disk_bytes(summary.disk_bytes() + report.held_bytes);
  for (v1::PinSummary& pin : report.pins) {
    *summary.add_pins() = std::move(pin);
  }
  return absl::OkStatus();
}

// Paths two levels below jobs/, that is of ranks.
absl::StatusOr<std::vector<std::string>> RankDirectories(io::FileSystem& files,
                                                         const std::string& state_directory) {
  std::vector<std::string> level = {JobsDirectory(state_directory)};
  const absl::StatusOr<io::FileInfo> jobs = files.Stat(level.front());
  if (absl::IsNotFound(jobs.status())) {
    return std::vector<std::string>();
  }
  MOMENT_RETURN_IF_ERROR(jobs.status());
  for (int depth = 0; depth < 3; ++depth) {  // job, role, rank
    std::vector<std::string> next;
    for (const std::string& directory : level) {
      MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
      for (const std::string& name : names) {
        const std::string path = Join(directory, name);
        const absl::StatusOr<io::FileInfo> info = files.Stat(path);
        if (info.ok() && info->directory) {
          next.push_back(path);
        }
      }
    }
    level = std::move(next);
  }
  return level;
}

v1::StoreSummary SummaryOf(io::FileSystem& files, io::IoEngine& engine,
                           const std::string& directory) {
  absl::StatusOr<v1::DescribeResponse> described = ReadStore(files, engine, directory);
  if (described.ok()) {
    return std::move(*described->mutable_summary());
  }
  v1::StoreSummary summary;
  summary.set_directory(directory);
  summary.set_problem(absl::IsNotFound(described.status())
                          ? "an Open was cut before it ended; the next one begins again"
                          : std::string(described.status().message()));
  return summary;
}

}  // namespace

absl::StatusOr<v1::DescribeResponse> ReadStore(io::FileSystem& files, io::IoEngine& engine,
                                               const std::string& directory) {
  MOMENT_ASSIGN_OR_RETURN(const OfflineStore store, ReadOffline(files, engine, directory));
  v1::DescribeResponse response;
  *response.mutable_store() = store.store;
  for (const v1::CommitRecord& commit : store.commits) {
    *response.add_commits() = commit;
    response.mutable_commits(response.commits_size() - 1)->clear_blob();
  }
  std::set<uint64_t> inodes;
  if (store.layout != nullptr) {
    *response.mutable_layout() = store.layout->proto();
    for (int bucket = 0; bucket < store.layout->proto().buckets_size(); ++bucket) {
      MOMENT_RETURN_IF_ERROR(AddFilesOf(files, directory, store, bucket, inodes, response));
    }
  }
  Summarize(files, directory, store, response);
  MOMENT_RETURN_IF_ERROR(AddPins(files, engine, directory, inodes, *response.mutable_summary()));
  return response;
}

absl::StatusOr<std::vector<v1::StoreSummary>> ListStores(io::FileSystem& files,
                                                         io::IoEngine& engine,
                                                         const std::string& state_directory) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> directories,
                          RankDirectories(files, state_directory));
  std::vector<v1::StoreSummary> summaries;
  for (const std::string& directory : directories) {
    summaries.push_back(SummaryOf(files, engine, directory));
  }
  return summaries;
}

}  // namespace moment::store
