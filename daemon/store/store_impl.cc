#include "daemon/store/store_impl.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/failpoint.h"
#include "daemon/store/commit_rules.h"

namespace moment::store {
namespace {

class StoreMutation final : public Mutation {
 public:
  StoreMutation(uint64_t id, Images images, std::vector<bool> rewritten,
                std::vector<std::shared_ptr<void>> taken_over)
      : taken_over_(std::move(taken_over)) {
    id_ = id;
    images_ = std::move(images);
    rewritten_ = std::move(rewritten);
  }

 private:
  const std::vector<std::shared_ptr<void>> taken_over_;  // files that are not rewritten
};

std::vector<RecordFacts> FactsOf(const std::vector<RecordSummary>& records) {
  std::vector<RecordFacts> facts;
  for (const RecordSummary& record : records) {
    facts.push_back(record.facts);
  }
  return facts;
}

}  // namespace

BucketImage::BucketImage(uint32_t bucket, uint32_t file_number, uint64_t written_by,
                         bool moments_zero, bool fresh, std::shared_ptr<io::File> file,
                         uint64_t checksum_count, std::shared_ptr<void> lease)
    : bucket_(bucket),
      file_number_(file_number),
      written_by_(written_by),
      moments_zero_(moments_zero),
      fresh_(fresh),
      file_(std::move(file)),
      checksums_(checksum_count, 0),
      lease_(std::move(lease)) {}

StoreImpl::StoreImpl(StoreParts parts)
    : environment_(parts.environment),
      faults_(parts.faults),
      directory_(std::move(parts.directory)),
      uuid_(std::move(parts.uuid)),
      commit_every_(parts.commit_every),
      blob_limit_bytes_(parts.blob_limit_bytes),
      max_pins_(parts.max_pins),
      layout_(std::move(parts.layout)),
      tensor_index_(std::move(parts.tensor_index)),
      warnings_(std::move(parts.warnings)),
      files_(parts.reservation->files()),
      commit_files_(std::move(parts.commit_files)),
      reservation_(std::move(parts.reservation)),
      newest_(std::move(parts.newest)) {
  absl::MutexLock disk(&disk_mutex_);
  commit_files_bytes_ = commit_files_->size_bytes();
  for (const RecordFacts& facts : commit_files_->Facts()) {
    absl::MutexLock lock(&state_mutex_);
    last_id_ = std::max(last_id_, facts.id);
  }
  Publish();
}

std::vector<uint32_t> StoreImpl::added_tensors() const {
  const std::shared_ptr<const State> state = newest();
  std::vector<uint32_t> added;
  if (state != nullptr) {
    for (int i = state->layout->proto().tensors_size(); i < layout_->proto().tensors_size(); ++i) {
      added.push_back(static_cast<uint32_t>(i));
    }
  }
  return added;
}

uint64_t StoreImpl::reserved_bytes() const { return files_->size_bytes() + commit_files_bytes_; }

std::shared_ptr<const State> StoreImpl::newest() const {
  absl::MutexLock lock(&state_mutex_);
  return newest_;
}

std::vector<v1::CommitInfo> StoreImpl::live() const {
  std::vector<v1::CommitInfo> commits;
  {
    absl::MutexLock lock(&state_mutex_);
    const std::vector<bool> is_live = LiveRecords(FactsOf(records_));
    for (size_t i = 0; i < records_.size(); ++i) {
      if (is_live[i]) {
        commits.push_back(InfoOf(records_[i]));
      }
    }
  }
  std::sort(commits.begin(), commits.end(),
            [](const auto& a, const auto& b) { return a.id() > b.id(); });
  return commits;
}

absl::Status StoreImpl::CheckOpen() const {
  absl::MutexLock lock(&state_mutex_);
  if (failure_.ok()) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat(directory_,
                                                    ": the store takes no more changes after \"",
                                                    failure_.message(), "\"; open it again"));
}

absl::Status StoreImpl::Latch(absl::Status status) {
  absl::MutexLock lock(&state_mutex_);
  failure_.Update(status);
  return status;
}

uint64_t StoreImpl::NextId() {
  absl::MutexLock lock(&state_mutex_);
  return ++last_id_;
}

bool StoreImpl::HasDead() const {
  absl::MutexLock lock(&state_mutex_);
  const std::vector<bool> is_live = LiveRecords(FactsOf(records_));
  return std::find(is_live.begin(), is_live.end(), false) != is_live.end();
}

absl::Status StoreImpl::EraseDead() {
  if (!HasDead()) {
    return absl::OkStatus();
  }
  absl::MutexLock disk(&disk_mutex_);
  if (absl::Status status = commit_files_->EraseDead(); !status.ok()) {
    return Latch(std::move(status));
  }
  Publish();
  return absl::OkStatus();
}

void StoreImpl::Publish() {
  std::vector<RecordSummary> records = commit_files_->Records();
  files_->SetRecords(records);
  absl::MutexLock lock(&state_mutex_);
  records_ = std::move(records);
}

absl::Status StoreImpl::Drop(uint64_t sequence) {
  MOMENT_RETURN_IF_ERROR(CheckOpen());
  absl::MutexLock disk(&disk_mutex_);
  const std::vector<RecordFacts> facts = commit_files_->Facts();
  MOMENT_ASSIGN_OR_RETURN(const std::vector<bool> kept, KeptAtArrival(facts, sequence));
  std::vector<uint64_t> erased;
  for (size_t i = 0; i < facts.size(); ++i) {
    if (!kept[i]) {
      erased.push_back(facts[i].id);
    }
  }
  absl::Status status = base::Failpoint("store.before_erase");
  if (status.ok()) {
    status = commit_files_->Erase(erased);
  }
  if (!status.ok()) {
    return Latch(std::move(status));
  }
  Publish();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Mutation>> StoreImpl::Begin(const State* base,
                                                           const std::vector<bool>& rewritten,
                                                           const std::vector<bool>& moments_zero) {
  MOMENT_RETURN_IF_ERROR(CheckOpen());
  MOMENT_RETURN_IF_ERROR(CheckBegin(base, rewritten, moments_zero));
  MOMENT_RETURN_IF_ERROR(EraseDead());
  const uint64_t id = NextId();
  MOMENT_ASSIGN_OR_RETURN(std::vector<FileTable::Lease> leases, TakeFiles(rewritten, id));
  Images images;
  std::vector<std::shared_ptr<void>> taken_over;
  for (uint32_t bucket = 0; bucket < rewritten.size(); ++bucket) {
    if (!rewritten[bucket]) {
      const std::shared_ptr<BucketImage>& image = base->images[bucket];
      taken_over.push_back(files_->TakeOver(bucket, image->file_number(), image->written_by()));
      images.push_back(image);
      continue;
    }
    FileTable::Lease& lease = leases[bucket];
    images.push_back(std::make_shared<BucketImage>(
        bucket, lease.number, id, moments_zero[bucket], lease.fresh, std::move(lease.file),
        layout_->buckets()[bucket].checksum_count, std::move(lease.hold)));
  }
  return std::make_unique<StoreMutation>(id, std::move(images), rewritten, std::move(taken_over));
}

absl::Status StoreImpl::CheckBegin(const State* base, const std::vector<bool>& rewritten,
                                   const std::vector<bool>& moments_zero) const {
  const size_t of_base = base == nullptr ? 0 : base->images.size();
  const bool fits = rewritten.size() == layout_->buckets().size() || rewritten.size() == of_base;
  if (!fits || moments_zero.size() != rewritten.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory_, ": a change of ", rewritten.size(), " buckets; the store has ",
                     layout_->buckets().size(), ", the state it follows ", of_base));
  }
  for (size_t bucket = of_base; bucket < rewritten.size(); ++bucket) {
    if (!rewritten[bucket]) {
      return absl::InvalidArgumentError(absl::StrCat(directory_, ": a change leaves out bucket ",
                                                     bucket, ", which has no content yet"));
    }
  }
  return absl::OkStatus();
}

// By bucket; empty for those that are not rewritten.
absl::StatusOr<std::vector<FileTable::Lease>> StoreImpl::TakeFiles(
    const std::vector<bool>& rewritten, uint64_t id) {
  std::vector<FileTable::Lease> leases(rewritten.size());
  std::vector<uint32_t> missing;
  for (uint32_t bucket = 0; bucket < rewritten.size(); ++bucket) {
    if (!rewritten[bucket]) {
      continue;
    }
    if (std::optional<FileTable::Lease> lease = files_->Take(bucket, id); lease.has_value()) {
      leases[bucket] = *std::move(lease);
    } else {
      missing.push_back(bucket);
    }
  }
  if (missing.empty()) {
    return leases;
  }
  absl::MutexLock disk(&disk_mutex_);
  MOMENT_RETURN_IF_ERROR(reservation_->Add(missing));
  for (const uint32_t bucket : missing) {
    std::optional<FileTable::Lease> lease = files_->Take(bucket, id);
    if (!lease.has_value()) {
      return absl::InternalError(
          absl::StrCat(directory_, ": a file made for bucket ", bucket, " was taken"));
    }
    leases[bucket] = *std::move(lease);
  }
  return leases;
}

}  // namespace moment::store
