#include "daemon/session/store_opener.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/errors.h"
#include "daemon/session/device_choice.h"
#include "daemon/session/open_request.h"
#include "daemon/session/profile.h"
#include "daemon/store/inspect.h"

namespace moment::session {
namespace {

store::OpenParameters ToParameters(const v1::OpenRequest& request, v1::Profile profile,
                                   uid_t owner) {
  store::OpenParameters parameters;
  parameters.name = request.name();
  parameters.members = {request.members().begin(), request.members().end()};
  parameters.tensors = {request.tensors().begin(), request.tensors().end()};
  parameters.positional = request.positional();
  parameters.profile = profile;
  parameters.resume = request.resume();
  if (request.bucket_elements() != 0) {
    parameters.bucket_elements = request.bucket_elements();
  }
  parameters.commit_every = request.has_commit_every() ? request.commit_every() : 1;
  parameters.blob_limit_bytes = request.blob_limit_bytes();
  parameters.owner_uid = owner;
  if (request.has_rollback_to()) {
    parameters.rollback_to = request.rollback_to();
  }
  return parameters;
}

void AddWarnings(const StateDirectory& directory, std::vector<std::string>& warnings) {
  if (directory.probe.is_volatile) {
    warnings.push_back(absl::StrCat("state directory ", directory.path, " is on ",
                                    directory.probe.file_system,
                                    ": its content is lost with the machine or the container"));
  }
  if (!directory.probe.direct_io) {
    warnings.push_back(absl::StrCat("state directory ", directory.path,
                                    " has no direct I/O: ", directory.probe.direct_io_reason));
  }
  if (!directory.engine_reason.empty()) {
    warnings.push_back(absl::StrCat("state directory ", directory.path,
                                    " is served by threads: ", directory.engine_reason));
  }
}

}  // namespace

absl::StatusOr<OpenedStore> NodeStoreOpener::Open(const v1::OpenRequest& request, uid_t owner) {
  OpenedStore opened;
  MOMENT_ASSIGN_OR_RETURN(DeviceChoice choice,
                          ChooseDevice(devices_, request.device(), request.profile()));
  MOMENT_ASSIGN_OR_RETURN(const StateDirectory* directory, Place(request));
  opened.io_engine = directory->engine->name();

  store::Environment environment;
  environment.files = &files_;
  environment.engine = directory->engine;
  environment.direct_io = directory->probe.direct_io;
  environment.state_directory = directory->path;
  environment.file_permissions = directory->file_permissions;
  environment.directory_permissions = directory->directory_permissions;
  store::OpenParameters parameters = ToParameters(request, choice.profile, owner);
  parameters.max_pins = max_pins_;
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<store::Store> store,
                          store::Store::Open(environment, parameters));
  opened.warnings = store->warnings();
  AddWarnings(*directory, opened.warnings);
  // What is on disk beats the request.
  opened.profile = store->layout()->proto().profile();
  MOMENT_ASSIGN_OR_RETURN(choice, ChooseDevice(devices_, request.device(), opened.profile));
  opened.device = choice.device->name();
  opened.importer = choice.device->importer();

  pipeline::PipelineOptions options;
  options.commit_every = parameters.commit_every;
  MOMENT_ASSIGN_OR_RETURN(options.profile, ProfileOf(opened.profile));
  MOMENT_ASSIGN_OR_RETURN(opened.pipeline, pipeline::StatePipeline::Create(
                                               node_, *choice.device, std::move(store), options));
  return opened;
}

absl::StatusOr<const StateDirectory*> NodeStoreOpener::Place(const v1::OpenRequest& request) const {
  const std::string& named = request.state_directory();
  MOMENT_ASSIGN_OR_RETURN(const StateDirectory* existing, FindExisting(request.name()));
  if (existing != nullptr) {
    if (!named.empty() && named != existing->path) {
      return absl::FailedPreconditionError(absl::StrCat(DescribeName(request.name()), " lies in ",
                                                        existing->path, ", not in ", named));
    }
    return existing;
  }
  if (named.empty()) {
    return Emptiest();
  }
  for (const StateDirectory& directory : directories_) {
    if (directory.path == named) {
      return &directory;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(named, " is no state directory of this daemon"));
}

absl::StatusOr<const StateDirectory*> NodeStoreOpener::FindExisting(
    const v1::StoreName& name) const {
  std::vector<const StateDirectory*> found;
  std::vector<std::string> paths;
  for (const StateDirectory& directory : directories_) {
    const std::string path = store::StoreDirectory(directory.path, name);
    const absl::StatusOr<io::FileInfo> info = files_.Stat(path);
    if (info.ok()) {
      found.push_back(&directory);
      paths.push_back(path);
    } else if (!absl::IsNotFound(info.status())) {
      return info.status();
    }
  }
  if (found.size() > 1) {
    return absl::FailedPreconditionError(absl::StrCat(DescribeName(name), " lies in ",
                                                      absl::StrJoin(paths, " and in "),
                                                      ": remove the one that is not wanted"));
  }
  return found.empty() ? nullptr : found.front();
}

absl::StatusOr<const StateDirectory*> NodeStoreOpener::Emptiest() const {
  const StateDirectory* emptiest = nullptr;
  uint64_t most = 0;
  for (const StateDirectory& directory : directories_) {
    MOMENT_ASSIGN_OR_RETURN(const io::Space space, files_.FreeSpace(directory.path));
    if (emptiest == nullptr || space.free_bytes > most) {
      emptiest = &directory;
      most = space.free_bytes;
    }
  }
  return emptiest;
}

}  // namespace moment::session
