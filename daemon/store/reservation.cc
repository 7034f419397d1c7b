#include "daemon/store/reservation.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/file_access.h"
#include "daemon/store/names.h"

namespace moment::store {
namespace {

int WritableCount(const std::vector<FileTable::FileState>& files) {
  return static_cast<int>(
      std::count_if(files.begin(), files.end(), [](const auto& file) { return file.writable; }));
}

uint32_t HighestNumber(const std::vector<FileTable::FileState>& files) {
  uint32_t highest = 0;
  for (const FileTable::FileState& file : files) {
    highest = std::max(highest, file.number);
  }
  return highest;
}

// Removes the bucket files of a directory, and the directory itself if nothing is left in it.
absl::Status RemoveBucketFiles(io::FileSystem& files, const std::string& directory) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory));
  size_t removed = 0;
  for (const std::string& name : names) {
    if (ParseBucketFileName(name).has_value()) {
      MOMENT_RETURN_IF_ERROR(files.Unlink(Join(directory, name)));
      ++removed;
    }
  }
  return removed == names.size() ? files.RemoveDirectory(directory)
                                 : files.SyncDirectory(directory);
}

// Directories in a store's directory that may be those of members.
absl::StatusOr<std::vector<std::string>> MemberDirectoryNames(io::FileSystem& files,
                                                              const std::string& directory) {
  MOMENT_ASSIGN_OR_RETURN(std::vector<std::string> names, files.List(directory));
  std::vector<std::string> found;
  for (std::string& name : names) {
    MOMENT_ASSIGN_OR_RETURN(const io::FileInfo info, files.Stat(Join(directory, name)));
    if (info.directory && name != kPinsDirectoryName) {
      found.push_back(std::move(name));
    }
  }
  return found;
}

}  // namespace

Reservation::Reservation(const Environment& environment, std::string directory,
                         std::shared_ptr<const Layout> layout)
    : environment_(environment),
      directory_(std::move(directory)),
      layout_(std::move(layout)),
      files_(std::make_shared<FileTable>(static_cast<uint32_t>(layout_->buckets().size()))) {
  for (uint32_t i = 0; i < layout_->buckets().size(); ++i) {
    const BucketGeometry& geometry = layout_->buckets()[i];
    const std::string& member = layout_->proto().members(static_cast<int>(geometry.member)).name();
    bucket_index_.emplace(BucketKey(EscapeName(member), geometry.number), i);
  }
}

absl::Status Reservation::Scan() {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          MemberDirectoryNames(*environment_.files, directory_));
  // Names that a killed process made are not durable yet; they are before this Open ends.
  touched_.push_back(directory_);
  for (const std::string& name : names) {
    touched_.push_back(Join(directory_, name));
    MOMENT_RETURN_IF_ERROR(ScanDirectory(name));
  }
  return absl::OkStatus();
}

absl::Status Reservation::ScanDirectory(const std::string& name) {
  const std::string directory = Join(directory_, name);
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> entries,
                          environment_.files->List(directory));
  bool known = false;
  for (const std::string& entry : entries) {
    const std::optional<BucketFileNumbers> numbers = ParseBucketFileName(entry);
    if (!numbers.has_value()) {
      continue;
    }
    const std::string path = Join(directory, entry);
    const auto bucket = bucket_index_.find(BucketKey(name, numbers->bucket));
    if (bucket == bucket_index_.end()) {
      orphans_.push_back(path);
      continue;
    }
    known = true;
    MOMENT_RETURN_IF_ERROR(OpenFound(bucket->second, numbers->file, path));
  }
  if (!known) {
    orphan_directories_.push_back(directory);
  }
  return absl::OkStatus();
}

absl::Status Reservation::OpenFound(uint32_t bucket, uint32_t number, const std::string& path) {
  MOMENT_ASSIGN_OR_RETURN(const io::FileInfo info, environment_.files->Stat(path));
  const bool writable = (info.permissions & kOwnerWriteBit) != 0 && info.links == 1;
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                          OpenBucketFile(environment_, path, writable));
  files_->Add(bucket, {.number = number,
                       .file = std::move(file),
                       .file_bytes = info.size_bytes,
                       .writable = writable});
  return absl::OkStatus();
}

absl::Status Reservation::CheckUnused(std::vector<std::string>& warnings) {
  for (uint32_t bucket = 0; bucket < layout_->buckets().size(); ++bucket) {
    const BucketHeader header = HeaderOf(bucket);
    for (const FileTable::FileState& file : files_->Unused(bucket)) {
      if (!file.writable) {
        continue;
      }
      const absl::Status status = CheckBucketFile(*environment_.engine, *file.file, header);
      if (!absl::IsDataLoss(status)) {
        MOMENT_RETURN_IF_ERROR(status);
        continue;
      }
      warnings.push_back(absl::StrCat(status.message(), "; no commit names it, it is rewritten"));
      MOMENT_RETURN_IF_ERROR(RepairBucketFile(*environment_.engine, *file.file, header));
    }
  }
  return absl::OkStatus();
}

absl::Status Reservation::Complete() {
  std::vector<uint32_t> missing;
  for (uint32_t bucket = 0; bucket < layout_->buckets().size(); ++bucket) {
    for (int i = WritableCount(files_->Files(bucket)); i < kImages; ++i) {
      missing.push_back(bucket);
    }
  }
  return Add(missing);
}

absl::Status Reservation::Add(const std::vector<uint32_t>& buckets) {
  absl::Status status = CheckSpace(buckets);
  if (status.ok()) {
    status = MakeDirectories();
  }
  if (status.ok()) {
    status = MakeAll(buckets);
  }
  if (status.ok()) {
    status = SyncTouched();
  }
  return Finish(std::move(status));
}

std::vector<uint32_t> Reservation::MissingWithout(const std::vector<uint32_t>& numbers) const {
  std::vector<uint32_t> missing;
  for (uint32_t bucket = 0; bucket < numbers.size(); ++bucket) {
    const std::vector<FileTable::FileState> files = files_->Files(bucket);
    int others = 0;
    for (const FileTable::FileState& file : files) {
      others += file.writable && file.number != numbers[bucket] ? 1 : 0;
    }
    const int higher = HighestNumber(files) > numbers[bucket] ? 0 : 1;
    for (int i = 0; i < std::max(kImages - others, higher); ++i) {
      missing.push_back(bucket);
    }
  }
  return missing;
}

absl::Status Reservation::MakeAll(const std::vector<uint32_t>& buckets) {
  for (const uint32_t bucket : buckets) {
    MOMENT_RETURN_IF_ERROR(Make(bucket));
  }
  std::vector<io::File*> files;
  for (const auto& [bucket, number] : made_) {
    files.push_back(files_->Find(bucket, number).get());
  }
  return SyncAll(*environment_.engine, files);
}

// Keeps what was made, or removes it after an error.
absl::Status Reservation::Finish(absl::Status status) {
  if (!status.ok()) {
    Undo();
  }
  made_.clear();
  made_directories_.clear();
  return status;
}

absl::Status Reservation::CheckSpace(const std::vector<uint32_t>& buckets) const {
  uint64_t needed = 0;
  for (const uint32_t bucket : buckets) {
    needed += layout_->buckets()[bucket].file_bytes;
  }
  MOMENT_ASSIGN_OR_RETURN(const io::Space space, environment_.files->FreeSpace(directory_));
  if (needed > space.free_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(directory_, ": ", needed, " bytes are needed for images of the state, ",
                     space.free_bytes, " are free; free space or use another state directory"));
  }
  return absl::OkStatus();
}

absl::Status Reservation::MakeDirectories() {
  for (const auto& [key, bucket] : bucket_index_) {
    const std::string path = Join(directory_, key.first);
    MOMENT_ASSIGN_OR_RETURN(const bool exists, Exists(*environment_.files, path));
    if (exists) {
      continue;
    }
    MOMENT_RETURN_IF_ERROR(
        environment_.files->CreateDirectory(path, environment_.directory_permissions));
    made_directories_.push_back(path);
  }
  return made_directories_.empty() ? absl::OkStatus()
                                   : environment_.files->SyncDirectory(directory_);
}

absl::Status Reservation::Make(uint32_t bucket) {
  const uint32_t number = files_->ReserveNumber(bucket);
  const std::string path = PathOf(bucket, number);
  const BucketHeader header = HeaderOf(bucket);
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                          CreateBucketFile(environment_, path, header));
  made_.emplace_back(bucket, number);
  touched_.push_back(ParentOf(path));
  files_->Add(bucket, {.number = number,
                       .file = std::move(file),
                       .file_bytes = header.geometry.file_bytes,
                       .fresh = true});
  return absl::OkStatus();
}

absl::Status Reservation::SyncTouched() {
  std::sort(touched_.begin(), touched_.end());
  touched_.erase(std::unique(touched_.begin(), touched_.end()), touched_.end());
  for (const std::string& directory : touched_) {
    MOMENT_RETURN_IF_ERROR(environment_.files->SyncDirectory(directory));
  }
  touched_.clear();
  return absl::OkStatus();
}

void Reservation::Undo() {
  for (const auto& [bucket, number] : made_) {
    files_->Remove(bucket, number);
    environment_.files->Unlink(PathOf(bucket, number)).IgnoreError();
  }
  for (const std::string& directory : made_directories_) {
    environment_.files->RemoveDirectory(directory).IgnoreError();
  }
  touched_.clear();
}

absl::Status Reservation::RemoveSurplus() {
  MOMENT_RETURN_IF_ERROR(RemoveFiles(environment_, directory_, *layout_, files_->TakeSurplus()));
  MOMENT_RETURN_IF_ERROR(RemoveOrphans());
  return SyncTouched();
}

absl::Status Reservation::RemoveFiles(const Environment& environment, const std::string& directory,
                                      const Layout& layout,
                                      const std::vector<FileTable::FileName>& names) {
  std::set<std::string> touched;
  for (const FileTable::FileName& name : names) {
    const std::string path =
        BucketFilePath(directory, layout.proto(), layout.buckets()[name.bucket], name.number);
    MOMENT_RETURN_IF_ERROR(environment.files->Unlink(path));
    touched.insert(ParentOf(path));
  }
  for (const std::string& member : touched) {
    MOMENT_RETURN_IF_ERROR(environment.files->SyncDirectory(member));
  }
  return absl::OkStatus();
}

absl::Status Reservation::RemoveOrphans() {
  for (const std::string& path : orphans_) {
    MOMENT_RETURN_IF_ERROR(environment_.files->Unlink(path));
    touched_.push_back(ParentOf(path));
  }
  orphans_.clear();
  for (const std::string& directory : orphan_directories_) {
    MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                            environment_.files->List(directory));
    const bool of_member = std::any_of(
        bucket_index_.begin(), bucket_index_.end(),
        [&](const auto& entry) { return Join(directory_, entry.first.first) == directory; });
    if (names.empty() && !of_member) {
      std::erase(touched_, directory);
      MOMENT_RETURN_IF_ERROR(environment_.files->RemoveDirectory(directory));
      touched_.push_back(directory_);
    }
  }
  orphan_directories_.clear();
  return absl::OkStatus();
}

absl::Status Reservation::RemoveAll(io::FileSystem& files, const std::string& directory) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          MemberDirectoryNames(files, directory));
  for (const std::string& name : names) {
    MOMENT_RETURN_IF_ERROR(RemoveBucketFiles(files, Join(directory, name)));
  }
  return files.SyncDirectory(directory);
}

std::string Reservation::PathOf(uint32_t bucket, uint32_t number) const {
  return BucketFilePath(directory_, layout_->proto(), layout_->buckets()[bucket], number);
}

BucketHeader Reservation::HeaderOf(uint32_t bucket) const {
  return BuildHeader(layout_->proto(), layout_->proto().buckets(static_cast<int>(bucket)));
}

}  // namespace moment::store
