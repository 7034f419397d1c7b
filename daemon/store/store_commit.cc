#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/errors.h"
#include "daemon/base/failpoint.h"
#include "daemon/store/bucket_file.h"
#include "daemon/store/file_access.h"
#include "daemon/store/recovery.h"
#include "daemon/store/store_impl.h"

// How a state becomes the newest commit: the second half of StoreImpl.
namespace moment::store {
absl::Status StoreImpl::Commit(std::unique_ptr<Mutation> mutation, const State& state) {
  absl::MutexLock order(&commit_mutex_);
  if (mutation == nullptr || mutation->id() != state.id) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory_, ": the commit of id ", state.id, " is not that of its change"));
  }
  return CommitState(state);
}

absl::Status StoreImpl::MarkDue() {
  absl::MutexLock order(&commit_mutex_);
  MOMENT_RETURN_IF_ERROR(CheckOpen());
  const std::shared_ptr<const State> current = newest();
  if (current == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory_, ": the store is empty, nothing can be made due; Refresh it"));
  }
  if (current->due) {
    return absl::OkStatus();
  }
  State state = *current;
  state.id = NextId();
  state.due = true;
  return CommitState(state);
}

absl::StatusOr<std::shared_ptr<const State>> StoreImpl::Rollback(uint64_t sequence) {
  absl::MutexLock order(&commit_mutex_);
  MOMENT_RETURN_IF_ERROR(CheckOpen());
  MOMENT_ASSIGN_OR_RETURN(const std::shared_ptr<State> state, LoadCommit(sequence));
  state->id = NextId();
  state->due = true;
  MOMENT_RETURN_IF_ERROR(CommitState(*state));
  return newest();
}

absl::StatusOr<std::shared_ptr<State>> StoreImpl::LoadCommit(uint64_t sequence) {
  const std::vector<v1::CommitInfo> commits = live();
  const auto found = std::find_if(commits.begin(), commits.end(), [&](const auto& commit) {
    return commit.sequence() == sequence;
  });
  if (found == commits.end()) {
    return absl::NotFoundError(
        absl::StrCat(directory_, ": no commit of sequence ", sequence, "; there are those of [",
                     absl::StrJoin(commits, ", ",
                                   [](std::string* out, const v1::CommitInfo& commit) {
                                     absl::StrAppend(out, commit.sequence());
                                   }),
                     "]"));
  }
  absl::MutexLock disk(&disk_mutex_);
  MOMENT_ASSIGN_OR_RETURN(const v1::CommitRecord record, commit_files_->Read(found->id()));
  std::shared_ptr<const Layout> layout = layout_;
  if (record.layout_digest() != layout->digest()) {
    MOMENT_ASSIGN_OR_RETURN(layout, LoadLayout(*environment_.files, *environment_.engine,
                                               directory_, record.layout_digest()));
  }
  return LoadState(*environment_.engine, directory_, layout, record, *files_);
}

absl::Status StoreImpl::CommitState(const State& state) {
  MOMENT_RETURN_IF_ERROR(CheckOpen());
  MOMENT_RETURN_IF_ERROR(CheckCommit(state));
  MOMENT_RETURN_IF_ERROR(EraseDead());
  MOMENT_ASSIGN_OR_RETURN(const v1::CommitRecord record, MakeRecord(state));
  absl::Status status = MakeDurable(state, record);
  return status.ok() ? status : Latch(std::move(status));
}

absl::Status StoreImpl::CheckCommit(const State& state) const {
  const std::shared_ptr<const State> current = newest();
  if (current != nullptr && state.id <= current->id) {
    return absl::InvalidArgumentError(absl::StrCat(directory_, ": the commit of id ", state.id,
                                                   " comes behind that of id ", current->id));
  }
  if (!KnowsLayout(state.layout->digest())) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory_, ": a commit with a layout that the store does not have"));
  }
  if (state.images.size() != state.layout->buckets().size() ||
      state.t.size() != static_cast<size_t>(state.layout->proto().tensors_size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory_, ": a commit of ", state.images.size(), " buckets and ",
                     state.t.size(), " tensors; its layout has ", state.layout->buckets().size(),
                     " and ", state.layout->proto().tensors_size()));
  }
  if (state.blob.size() > blob_limit_bytes_) {
    return absl::InvalidArgumentError(absl::StrCat(directory_, ": a blob of ", state.blob.size(),
                                                   " bytes; the limit given at Open is ",
                                                   blob_limit_bytes_));
  }
  return CheckImages(state);
}

absl::Status StoreImpl::CheckImages(const State& state) const {
  for (size_t i = 0; i < state.images.size(); ++i) {
    const BucketImage& image = *state.images[i];
    const auto bucket = static_cast<uint32_t>(i);
    const bool held = image.bucket() == bucket &&
                      (files_->IsNamed(bucket, image.file_number(), image.written_by()) ||
                       files_->IsLeased(bucket, image.file_number(), image.written_by()) ||
                       files_->IsTakenOver(bucket, image.file_number(), image.written_by()));
    if (!held) {
      return absl::InvalidArgumentError(
          absl::StrCat(image.file().path(), ": a commit of id ", state.id,
                       " names this file, which neither a commit names nor its own change holds"));
    }
  }
  return absl::OkStatus();
}

bool StoreImpl::KnowsLayout(uint64_t digest) const {
  if (digest == layout_->digest()) {
    return true;
  }
  absl::MutexLock lock(&state_mutex_);
  return std::any_of(records_.begin(), records_.end(),
                     [&](const RecordSummary& record) { return record.layout_digest == digest; });
}

absl::StatusOr<v1::CommitRecord> StoreImpl::MakeRecord(const State& state) {
  std::vector<uint64_t> digests;
  for (const std::shared_ptr<BucketImage>& image : state.images) {
    digests.push_back(TableDigest({.store_uuid = uuid_,
                                   .bucket = image->bucket(),
                                   .file = image->file_number(),
                                   .id = image->written_by()},
                                  image->checksums()));
  }
  v1::CommitRecord record = RecordOf(state, digests, uuid_, commit_every_);
  absl::MutexLock disk(&disk_mutex_);
  MOMENT_RETURN_IF_ERROR(commit_files_->CheckWrite(record));
  return record;
}

std::vector<BucketImage*> StoreImpl::UncommittedImages(const State& state) const {
  std::vector<BucketImage*> images;
  for (const std::shared_ptr<BucketImage>& image : state.images) {
    if (files_->IsLeased(image->bucket(), image->file_number(), image->written_by())) {
      images.push_back(image.get());
    }
  }
  return images;
}

absl::Status StoreImpl::MakeDurable(const State& state, const v1::CommitRecord& record) {
  const std::vector<BucketImage*> images = UncommittedImages(state);
  MOMENT_RETURN_IF_ERROR(WriteTables(images, *state.layout));
  if (faults_.record_before_sync) {
    MOMENT_RETURN_IF_ERROR(WriteRecord(state, record));
    return SyncData(images);
  }
  MOMENT_RETURN_IF_ERROR(SyncData(images));
  return WriteRecord(state, record);
}

absl::Status StoreImpl::WriteTables(const std::vector<BucketImage*>& images, const Layout& layout) {
  for (const BucketImage* image : images) {
    MOMENT_RETURN_IF_ERROR(
        WriteTable(*environment_.engine, *image, layout.buckets()[image->bucket()], uuid_)
            .status());
  }
  return absl::OkStatus();
}

absl::Status StoreImpl::SyncData(const std::vector<BucketImage*>& images) {
  if (absl::Status status = base::Failpoint("store.before_data_sync"); !status.ok()) {
    return status;
  }
  std::vector<io::File*> files;
  for (const BucketImage* image : images) {
    files.push_back(&image->file());
  }
  return SyncAll(*environment_.engine, files);
}

absl::Status StoreImpl::WriteRecord(const State& state, const v1::CommitRecord& record) {
  MOMENT_RETURN_IF_ERROR(base::Failpoint("store.before_record"));
  absl::MutexLock disk(&disk_mutex_);
  MOMENT_RETURN_IF_ERROR(commit_files_->Write(record));
  MOMENT_RETURN_IF_ERROR(base::Failpoint("store.after_record"));
  Publish();
  for (const std::shared_ptr<BucketImage>& image : state.images) {
    files_->EndLease(image->bucket(), image->file_number());
  }
  absl::MutexLock lock(&state_mutex_);
  newest_ = std::make_shared<const State>(state);
  return absl::OkStatus();
}

}  // namespace moment::store
