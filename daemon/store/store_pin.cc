#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "daemon/base/errors.h"
#include "daemon/base/failpoint.h"
#include "daemon/store/bucket_file.h"
#include "daemon/store/layout_file.h"
#include "daemon/store/names.h"
#include "daemon/store/pin_files.h"
#include "daemon/store/store_impl.h"

// How a commit is kept: pins, and the removal of what they no longer hold.
namespace moment::store {
namespace {

constexpr uint32_t kWriteBits = 0222;

// Pins that share their files need one image together.
size_t CountImages(const std::vector<std::shared_ptr<const PinnedCommit>>& pins,
                   const PinnedCommit& more) {
  std::vector<const std::vector<uint32_t>*> images = {&more.files};
  for (const std::shared_ptr<const PinnedCommit>& pin : pins) {
    const bool known = std::any_of(images.begin(), images.end(),
                                   [&](const auto* files) { return *files == pin->files; });
    if (!known) {
      images.push_back(&pin->files);
    }
  }
  return images.size();
}

std::string DescribePin(const PinnedCommit& pin) {
  return absl::StrCat(
      pin.id, " of sequence ", pin.commit.sequence(), ", process ", pin.owner.pid(),
      pin.owner.program().empty() ? "" : absl::StrCat(" (", pin.owner.program(), ")"));
}

v1::PinManifest ManifestOf(const PinnedCommit& pin, v1::CommitRecord record) {
  v1::PinManifest manifest;
  manifest.set_format_version(kPinFormatVersion);
  manifest.set_id(pin.id);
  *manifest.mutable_owner() = pin.owner;
  manifest.set_unix_time_ns(pin.unix_time_ns);
  record.clear_blob();
  *manifest.mutable_commit() = std::move(record);
  return manifest;
}

PinnedCommit Describe(const PinParameters& parameters, const State& state) {
  PinnedCommit pin;
  pin.id = parameters.id;
  pin.owner = parameters.owner;
  pin.unix_time_ns = absl::GetCurrentTimeNanos();
  pin.layout = state.layout;
  pin.t = state.t;
  for (const std::shared_ptr<BucketImage>& image : state.images) {
    pin.files.push_back(image->file_number());
    pin.size_bytes += state.layout->buckets()[image->bucket()].file_bytes;
  }
  return pin;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const PinnedCommit>> StoreImpl::Pin(
    const PinParameters& parameters) {
  absl::StatusOr<std::shared_ptr<const PinnedCommit>> pin = TryPin(parameters);
  // What a dropped pin holds stands in the way until it is swept.
  if (!absl::IsResourceExhausted(pin.status()) && !absl::IsAlreadyExists(pin.status())) {
    return pin;
  }
  Sweep().IgnoreError();  // told by the next one
  return TryPin(parameters);
}

absl::StatusOr<std::shared_ptr<const PinnedCommit>> StoreImpl::TryPin(
    const PinParameters& parameters) {
  absl::MutexLock order(&commit_mutex_);
  MOMENT_RETURN_IF_ERROR(CheckOpen());
  MOMENT_RETURN_IF_ERROR(CheckPinId(parameters.id));
  const std::shared_ptr<const State> state = newest();
  if (state == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory_, ": the store is empty, there is nothing to pin; Refresh it"));
  }
  auto pin = std::make_shared<PinnedCommit>(Describe(parameters, *state));
  pin->commit = live().front();
  MOMENT_RETURN_IF_ERROR(CheckPin(*pin));
  MOMENT_RETURN_IF_ERROR(
      base::WithContext(MakeDurablePin(*pin), absl::StrCat("pin ", parameters.id)));
  absl::MutexLock lock(&state_mutex_);
  pins_.push_back(pin);
  return pin;
}

absl::Status StoreImpl::CheckPin(const PinnedCommit& pin) const {
  absl::MutexLock lock(&state_mutex_);
  std::vector<std::string> others;
  for (const std::shared_ptr<const PinnedCommit>& other : pins_) {
    if (other->id == pin.id) {
      return absl::AlreadyExistsError(absl::StrCat(directory_, " has a pin ", pin.id, " already"));
    }
    others.push_back(DescribePin(*other));
  }
  if (CountImages(pins_, pin) > max_pins_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(directory_, ": max_saves is ", max_pins_, ", and as many commits are pinned (",
                     absl::StrJoin(others, "; "),
                     "): release one, drop it with `momentctl drop --pin`, or raise max_saves"));
  }
  return absl::OkStatus();
}

absl::Status StoreImpl::MakeDurablePin(const PinnedCommit& pin) {
  absl::MutexLock disk(&disk_mutex_);
  MOMENT_ASSIGN_OR_RETURN(const v1::CommitRecord record, commit_files_->Read(pin.commit.id()));
  absl::Status status = MakePin(pin, record);
  if (!status.ok() && !absl::IsAlreadyExists(status)) {
    RemovePin(*environment_.files, directory_, pin.id).IgnoreError();
    // What was reserved for it is beyond three now.
    RemoveFiles(files_->TakeSurplus()).IgnoreError();
  }
  return status;
}

// Marks the files when the pin is complete: nobody knows it before this returns, so what a failure
// leaves unmarked may be written again.
absl::Status StoreImpl::MakePin(const PinnedCommit& pin, const v1::CommitRecord& record) {
  const std::vector<uint32_t> missing = reservation_->MissingWithout(pin.files);
  MOMENT_RETURN_IF_ERROR(reservation_->CheckSpace(missing));
  PinMaker maker(environment_, directory_, pin.layout, ManifestOf(pin, record));
  MOMENT_RETURN_IF_ERROR(maker.Link());
  MOMENT_RETURN_IF_ERROR(reservation_->Add(missing));
  MOMENT_RETURN_IF_ERROR(maker.Complete());
  MOMENT_RETURN_IF_ERROR(base::Failpoint("store.before_pin_mark"));
  MOMENT_RETURN_IF_ERROR(MarkPinned(pin));
  MOMENT_RETURN_IF_ERROR(maker.Sync());
  return base::Failpoint("store.after_pin_mark");
}

absl::Status StoreImpl::MarkPinned(const PinnedCommit& pin) {
  for (uint32_t bucket = 0; bucket < pin.files.size(); ++bucket) {
    if (faults_.rewrite_pinned) {
      continue;
    }
    files_->SetPinned(bucket, pin.files[bucket]);
    if (!faults_.pin_without_mode) {
      const std::string path = BucketFilePath(directory_, pin.layout->proto(),
                                              pin.layout->buckets()[bucket], pin.files[bucket]);
      MOMENT_RETURN_IF_ERROR(
          environment_.files->SetPermissions(path, environment_.file_permissions & ~kWriteBits));
    }
  }
  return absl::OkStatus();
}

absl::Status StoreImpl::Unpin(const std::string& id) {
  absl::MutexLock lock(&state_mutex_);
  const auto pin = std::find_if(pins_.begin(), pins_.end(),
                                [&](const auto& candidate) { return candidate->id == id; });
  if (pin == pins_.end()) {
    return absl::NotFoundError(absl::StrCat(directory_, " has no pin ", id));
  }
  pins_.erase(pin);
  dropped_pins_.push_back(id);
  return absl::OkStatus();
}

std::vector<std::shared_ptr<const PinnedCommit>> StoreImpl::pins() const {
  absl::MutexLock lock(&state_mutex_);
  return pins_;
}

uint64_t StoreImpl::HeldBytes(const PinnedCommit& pin) const {
  uint64_t bytes = 0;
  for (uint32_t bucket = 0; bucket < pin.files.size(); ++bucket) {
    if (files_->Find(bucket, pin.files[bucket]) == nullptr) {
      bytes += pin.layout->buckets()[bucket].file_bytes;
    }
  }
  return bytes;
}

std::shared_ptr<const PinnedCommit> StoreImpl::FindPin(const std::string& id) const {
  absl::MutexLock lock(&state_mutex_);
  const auto pin = std::find_if(pins_.begin(), pins_.end(),
                                [&](const auto& candidate) { return candidate->id == id; });
  return pin == pins_.end() ? nullptr : *pin;
}

absl::StatusOr<std::vector<std::unique_ptr<io::File>>> StoreImpl::OpenPinned(const std::string& id,
                                                                             uint32_t first,
                                                                             uint32_t count) const {
  const std::shared_ptr<const PinnedCommit> pin = FindPin(id);
  if (pin == nullptr) {
    return absl::NotFoundError(absl::StrCat(directory_, " has no pin ", id));
  }
  std::vector<std::unique_ptr<io::File>> files;
  const uint64_t end = std::min<uint64_t>(pin->files.size(), uint64_t{first} + count);
  for (uint64_t bucket = first; bucket < end; ++bucket) {
    MOMENT_ASSIGN_OR_RETURN(
        std::unique_ptr<io::File> file,
        environment_.files->Open(
            PinnedFilePath(directory_, id, pin->layout->proto(), pin->layout->buckets()[bucket]),
            {.mode = io::OpenMode::kRead}));
    files.push_back(std::move(file));
  }
  return files;
}

bool StoreImpl::wants_sweep() const {
  {
    absl::MutexLock lock(&state_mutex_);
    if (!dropped_pins_.empty()) {
      return true;
    }
  }
  return files_->HasSurplus();
}

absl::Status StoreImpl::Sweep() {
  absl::MutexLock one(&sweep_mutex_);
  absl::Status status = SweepPins();
  std::vector<FileTable::FileName> surplus;
  {
    // Not between the making of a file and its use.
    absl::MutexLock disk(&disk_mutex_);
    surplus = files_->TakeSurplus();
  }
  status.Update(RemoveFiles(surplus));
  return status;
}

absl::Status StoreImpl::SweepPins() {
  absl::Status first;
  for (;;) {
    std::string id;
    {
      absl::MutexLock lock(&state_mutex_);
      if (dropped_pins_.empty()) {
        return first;
      }
      id = dropped_pins_.front();
    }
    const absl::Status status = RemovePin(*environment_.files, directory_, id);
    if (!status.ok() && !absl::IsFailedPrecondition(status)) {
      return status;  // tried again by the next one
    }
    first.Update(status);
    absl::MutexLock lock(&state_mutex_);
    std::erase(dropped_pins_, id);
  }
}

absl::Status StoreImpl::RemoveFiles(const std::vector<FileTable::FileName>& names) const {
  return Reservation::RemoveFiles(environment_, directory_, *layout_, names);
}

}  // namespace moment::store
