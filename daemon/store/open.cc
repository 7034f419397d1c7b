#include "daemon/store/open.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/commit_record.h"
#include "daemon/store/commit_rules.h"
#include "daemon/store/file_access.h"
#include "daemon/store/layout_check.h"
#include "daemon/store/layout_file.h"
#include "daemon/store/names.h"
#include "daemon/store/pin_files.h"
#include "daemon/store/recovery.h"
#include "daemon/store/uuid.h"

// The common part of an Open, and the making of a new store; open_existing.cc has the rest.
namespace moment::store {
namespace {

// Held while the directories of a store are made or removed: another store's Open may want the same
// job or role directory at that moment.
absl::Mutex& DirectoriesMutex() {
  static auto* const mutex = new absl::Mutex();
  return *mutex;
}

absl::Status CheckParameters(const OpenParameters& parameters, const LayoutRequest& request) {
  MOMENT_RETURN_IF_ERROR(CheckStoreName(parameters.name));
  if (parameters.blob_limit_bytes > kMaxBlobBytes) {
    return absl::InvalidArgumentError(absl::StrCat("a blob limit of ", parameters.blob_limit_bytes,
                                                   " bytes, at most ", kMaxBlobBytes,
                                                   " are possible"));
  }
  return CheckRequest(request);
}

absl::Status NoState(const OpenParameters& parameters) {
  return absl::NotFoundError(absl::StrCat(Describe(parameters.name),
                                          ": resume=must, but there is no state; open with "
                                          "resume=auto to begin"));
}

}  // namespace

Opener::Opener(const Environment& environment, const OpenParameters& parameters,
               const StoreFaults& faults)
    : environment_(environment),
      parameters_(parameters),
      faults_(faults),
      directory_(StoreDirectory(environment.state_directory, parameters.name)) {
  request_.members = parameters.members;
  request_.tensors = parameters.tensors;
  request_.positional = parameters.positional;
  request_.profile = parameters.profile;
  request_.bucket_elements = parameters.bucket_elements;
}

absl::StatusOr<std::unique_ptr<Store>> Opener::Run() {
  MOMENT_RETURN_IF_ERROR(CheckParameters(parameters_, request_));
  const absl::StatusOr<v1::StoreFile> store =
      LoadStoreFile(*environment_.files, *environment_.engine, directory_);
  if (!store.ok() && !absl::IsNotFound(store.status())) {
    return store.status();
  }
  if (store.ok()) {
    MOMENT_RETURN_IF_ERROR(CheckStoreFile(*store));
    uuid_ = store->store_uuid();
    MOMENT_ASSIGN_OR_RETURN(CommitFiles commit_files,
                            CommitFiles::Load(environment_, directory_, uuid_, faults_));
    commit_files_ = std::make_unique<CommitFiles>(std::move(commit_files));
    if (!commit_files_->Facts().empty()) {
      return Recover();
    }
    MOMENT_RETURN_IF_ERROR(CheckLost());
  }
  if (parameters_.resume == v1::RESUME_MUST || parameters_.rollback_to.has_value()) {
    return NoState(parameters_);
  }
  return MakeNew();
}

absl::Status Opener::CheckStoreFile(const v1::StoreFile& store) const {
  if (Describe(store.name()) != Describe(parameters_.name)) {
    return absl::FailedPreconditionError(
        absl::StrCat(directory_, " belongs to ", Describe(store.name()), ", not to ",
                     Describe(parameters_.name), "; choose another name"));
  }
  if (parameters_.owner_uid != 0 && parameters_.owner_uid != store.owner_uid()) {
    return absl::PermissionDeniedError(absl::StrCat(Describe(store.name()), " belongs to uid ",
                                                    store.owner_uid(), ", it is opened by uid ",
                                                    parameters_.owner_uid));
  }
  return absl::OkStatus();
}

// Of a store without a record. To start over is a choice; to take lost commits for none is not.
absl::Status Opener::CheckLost() {
  warnings_ = commit_files_->warnings();
  const absl::Status status = commit_files_->CheckNeverCommitted();
  if (absl::IsDataLoss(status) && parameters_.resume == v1::RESUME_NEVER) {
    warnings_.push_back(absl::StrCat(status.message(), "; the store starts over"));
    return absl::OkStatus();
  }
  return status;
}

absl::StatusOr<std::unique_ptr<Store>> Opener::MakeNew() {
  MOMENT_ASSIGN_OR_RETURN(layout_, Layout::Create(PlanLayout(nullptr, request_)));
  uuid_ = NewUuid();
  commit_files_.reset();
  MOMENT_RETURN_IF_ERROR(MakeDirectories());
  if (const absl::Status status = Fill(); !status.ok()) {
    reservation_.reset();
    commit_files_.reset();
    Wipe().IgnoreError();
    RemoveDirectories();
    return base::WithContext(status, Describe(parameters_.name));
  }
  return std::unique_ptr<Store>(std::make_unique<StoreImpl>(Parts()));
}

absl::Status Opener::MakeDirectories() {
  absl::MutexLock lock(&DirectoriesMutex());
  return io::CreateDirectories(*environment_.files, directory_, environment_.directory_permissions);
}

// As far as they are empty.
void Opener::RemoveDirectories() {
  absl::MutexLock lock(&DirectoriesMutex());
  std::string directory = directory_;
  const std::string jobs = JobsDirectory(environment_.state_directory);
  while (directory != jobs && environment_.files->RemoveDirectory(directory).ok()) {
    directory = ParentOf(directory);
    environment_.files->SyncDirectory(directory).IgnoreError();
  }
}

absl::Status Opener::Fill() {
  MOMENT_RETURN_IF_ERROR(Wipe());
  MOMENT_RETURN_IF_ERROR(WriteLayoutFile(*layout_));
  MOMENT_ASSIGN_OR_RETURN(
      CommitFiles commit_files,
      CommitFiles::Create(environment_, directory_,
                          RecordRoom(layout_->proto(), parameters_.blob_limit_bytes), faults_));
  commit_files_ = std::make_unique<CommitFiles>(std::move(commit_files));
  reservation_ = std::make_unique<Reservation>(environment_, directory_, layout_);
  MOMENT_RETURN_IF_ERROR(reservation_->Complete());
  MOMENT_RETURN_IF_ERROR(environment_.files->SyncDirectory(directory_));
  return WriteStoreFile();
}

// Removes what an earlier Open left, store.json first: without it nothing else counts.
absl::Status Opener::Wipe() {
  io::FileSystem& files = *environment_.files;
  MOMENT_ASSIGN_OR_RETURN(const bool complete, Exists(files, Join(directory_, kStoreFileName)));
  if (complete) {
    MOMENT_RETURN_IF_ERROR(files.Unlink(Join(directory_, kStoreFileName)));
    MOMENT_RETURN_IF_ERROR(files.SyncDirectory(directory_));
  }
  MOMENT_RETURN_IF_ERROR(DropPins());
  MOMENT_RETURN_IF_ERROR(Reservation::RemoveAll(files, directory_));
  for (int i = 0; i < kCommitFiles; ++i) {
    MOMENT_RETURN_IF_ERROR(UnlinkIfThere(files, Join(directory_, CommitFileName(i))));
  }
  MOMENT_RETURN_IF_ERROR(UnlinkIfThere(files, Join(directory_, kStoreFileTemporaryName)));
  MOMENT_RETURN_IF_ERROR(UnlinkIfThere(files, Join(directory_, kCommitFileTemporaryName)));
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(directory_));
  for (const std::string& name : names) {
    if (ParseLayoutFileName(name).has_value()) {
      MOMENT_RETURN_IF_ERROR(files.Unlink(Join(directory_, name)));
    }
  }
  return files.SyncDirectory(directory_);
}

// Their sessions are over. What else lies in their directories is left alone, and told.
absl::Status Opener::DropPins() {
  io::FileSystem& files = *environment_.files;
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> ids, PinIds(files, directory_));
  for (const std::string& id : ids) {
    const absl::Status status = RemovePin(files, directory_, id);
    if (!absl::IsFailedPrecondition(status)) {
      MOMENT_RETURN_IF_ERROR(status);
    } else {
      warnings_.emplace_back(status.message());
    }
  }
  return absl::OkStatus();
}

absl::Status Opener::WriteStoreFile() {
  v1::StoreFile store;
  store.set_format_version(kStoreFormatVersion);
  store.set_store_uuid(uuid_);
  *store.mutable_name() = parameters_.name;
  store.set_owner_uid(parameters_.owner_uid);
  return WriteTextFile(environment_, Join(directory_, kStoreFileName),
                       Join(directory_, kStoreFileTemporaryName), WriteStoreText(store));
}

absl::Status Opener::WriteLayoutFile(const Layout& layout) const {
  return WriteTextFile(environment_, Join(directory_, LayoutFileName(layout.digest())),
                       Join(directory_, kStoreFileTemporaryName), WriteLayoutText(layout.proto()));
}

StoreParts Opener::Parts() {
  StoreParts parts;
  parts.environment = environment_;
  parts.faults = faults_;
  parts.directory = directory_;
  parts.uuid = uuid_;
  parts.commit_every = parameters_.commit_every;
  parts.blob_limit_bytes = parameters_.blob_limit_bytes;
  parts.max_pins = parameters_.max_pins;
  parts.layout = layout_;
  parts.tensor_index = MapTensors(layout_->proto(), request_);
  parts.commit_files = std::move(commit_files_);
  parts.reservation = std::move(reservation_);
  parts.newest = newest_;
  parts.warnings = warnings_;
  return parts;
}

absl::StatusOr<std::unique_ptr<Store>> OpenStore(const Environment& environment,
                                                 const OpenParameters& parameters,
                                                 const StoreFaults& faults) {
  return Opener(environment, parameters, faults).Run();
}

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const Environment& environment,
                                                   const OpenParameters& parameters) {
  return OpenStore(environment, parameters, StoreFaults());
}

}  // namespace moment::store
