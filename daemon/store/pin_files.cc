#include "daemon/store/pin_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/errors.h"
#include "daemon/base/failpoint.h"
#include "daemon/store/bucket_file.h"
#include "daemon/store/file_access.h"
#include "daemon/store/layout_file.h"
#include "daemon/store/names.h"

namespace moment::store {
namespace {

constexpr size_t kMaxPinIdBytes = 64;

absl::Status EnsureDirectory(const Environment& environment, const std::string& path) {
  const absl::Status status =
      environment.files->CreateDirectory(path, environment.directory_permissions);
  return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;
}

// Removes the links in a member's directory, and the directory if nothing else is in it.
absl::Status RemoveMember(io::FileSystem& files, const std::string& member) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(member));
  for (const std::string& name : names) {
    if (IsPinnedFileName(name)) {
      MOMENT_RETURN_IF_ERROR(UnlinkIfThere(files, Join(member, name)));
    }
  }
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> left, files.List(member));
  return left.empty() ? files.RemoveDirectory(member) : absl::OkStatus();
}

absl::Status RemoveMembers(io::FileSystem& files, const std::string& pin) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> names, files.List(pin));
  for (const std::string& name : names) {
    const std::string path = Join(pin, name);
    const absl::StatusOr<io::FileInfo> info = files.Stat(path);
    if (info.ok() && info->directory) {
      MOMENT_RETURN_IF_ERROR(RemoveMember(files, path));
    }
  }
  return absl::OkStatus();
}

absl::Status Remove(io::FileSystem& files, const std::string& pin) {
  MOMENT_RETURN_IF_ERROR(UnlinkIfThere(files, Join(pin, kManifestFileName)));
  MOMENT_RETURN_IF_ERROR(UnlinkIfThere(files, Join(pin, kManifestTemporaryName)));
  MOMENT_RETURN_IF_ERROR(files.SyncDirectory(pin));
  MOMENT_RETURN_IF_ERROR(base::Failpoint("store.pin_half_dropped"));
  MOMENT_RETURN_IF_ERROR(RemoveMembers(files, pin));
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> left, files.List(pin));
  if (!left.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        pin, ": the pin was dropped, but these are not its files: ", absl::StrJoin(left, ", "),
        "; remove them and the directory"));
  }
  MOMENT_RETURN_IF_ERROR(files.RemoveDirectory(pin));
  const std::string pins = ParentOf(pin);
  MOMENT_RETURN_IF_ERROR(files.SyncDirectory(pins));
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> others, files.List(pins));
  if (!others.empty()) {
    return absl::OkStatus();
  }
  if (const absl::Status removed = files.RemoveDirectory(pins); !removed.ok()) {
    MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> made, files.List(pins));
    return made.empty() ? removed : absl::OkStatus();
  }
  return files.SyncDirectory(ParentOf(pins));
}

// With pins/, which goes when the last pin is removed: perhaps between the two.
absl::Status MakePinDirectory(const Environment& environment, const std::string& pin) {
  constexpr int kAttempts = 3;
  absl::Status status;
  for (int i = 0; i < kAttempts; ++i) {
    MOMENT_RETURN_IF_ERROR(EnsureDirectory(environment, ParentOf(pin)));
    status = environment.files->CreateDirectory(pin, environment.directory_permissions);
    if (!absl::IsNotFound(status)) {
      break;
    }
  }
  return status;
}

}  // namespace

absl::Status CheckPinId(absl::string_view id) {
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
  });
  if (id.empty() || id.size() > kMaxPinIdBytes || !plain) {
    return absl::InvalidArgumentError(absl::StrCat("the id of a pin has 1 to ", kMaxPinIdBytes,
                                                   " letters, digits, '-' and '_'; this one is '",
                                                   id.substr(0, kMaxPinIdBytes), "'"));
  }
  return absl::OkStatus();
}

PinMaker::PinMaker(const Environment& environment, std::string directory,
                   std::shared_ptr<const Layout> layout, v1::PinManifest manifest)
    : environment_(environment),
      directory_(std::move(directory)),
      layout_(std::move(layout)),
      manifest_(std::move(manifest)),
      pin_(PinDirectory(directory_, manifest_.id())) {}

absl::Status PinMaker::Link() {
  MOMENT_RETURN_IF_ERROR(MakePinDirectory(environment_, pin_));
  for (size_t i = 0; i < layout_->buckets().size(); ++i) {
    const BucketGeometry& geometry = layout_->buckets()[i];
    const std::string file = BucketFilePath(directory_, layout_->proto(), geometry,
                                            manifest_.commit().buckets(static_cast<int>(i)).file());
    const std::string link = PinnedFilePath(directory_, manifest_.id(), layout_->proto(), geometry);
    if (members_.insert(ParentOf(link)).second) {
      MOMENT_RETURN_IF_ERROR(EnsureDirectory(environment_, ParentOf(link)));
    }
    MOMENT_RETURN_IF_ERROR(environment_.files->Link(file, link));
    linked_.insert(ParentOf(file));
  }
  MOMENT_ASSIGN_OR_RETURN(
      manifest_file_,
      CreateTextFile(environment_, Join(pin_, kManifestTemporaryName), WritePinText(manifest_)));
  return absl::OkStatus();
}

absl::Status PinMaker::Complete() {
  MOMENT_RETURN_IF_ERROR(io::Sync(*environment_.engine, *manifest_file_));
  MOMENT_RETURN_IF_ERROR(SyncDirectories(members_));
  MOMENT_RETURN_IF_ERROR(base::Failpoint("store.before_pin_manifest"));
  return environment_.files->Rename(Join(pin_, kManifestTemporaryName),
                                    Join(pin_, kManifestFileName));
}

absl::Status PinMaker::Sync() {
  MOMENT_RETURN_IF_ERROR(SyncDirectories({pin_, PinsDirectory(directory_), directory_}));
  return SyncDirectories(linked_);
}

absl::Status PinMaker::SyncDirectories(const std::set<std::string>& directories) const {
  for (const std::string& directory : directories) {
    MOMENT_RETURN_IF_ERROR(environment_.files->SyncDirectory(directory));
  }
  return absl::OkStatus();
}

absl::Status RemovePin(io::FileSystem& files, const std::string& directory, const std::string& id) {
  const absl::Status status = Remove(files, PinDirectory(directory, id));
  // Not there, or removed by someone else meanwhile.
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

absl::StatusOr<std::vector<std::string>> PinIds(io::FileSystem& files,
                                                const std::string& directory) {
  absl::StatusOr<std::vector<std::string>> ids = files.List(PinsDirectory(directory));
  return absl::IsNotFound(ids.status()) ? std::vector<std::string>() : std::move(ids);
}

absl::StatusOr<v1::PinManifest> LoadPin(io::FileSystem& files, io::IoEngine& engine,
                                        const std::string& directory, const std::string& id) {
  const std::string path = Join(PinDirectory(directory, id), kManifestFileName);
  MOMENT_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(files, engine, path));
  return ReadPinText(path, text);
}

std::string PinnedFilePath(const std::string& directory, absl::string_view id,
                           const v1::Layout& layout, const BucketGeometry& geometry) {
  return Join(MemberDirectory(PinDirectory(directory, id), layout, geometry.member),
              PinnedFileName(geometry.number));
}

}  // namespace moment::store
