#include "daemon/io/simulated_file_system.h"

#include <algorithm>
#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::io {

SimulatedFile::SimulatedFile(std::string path, const OpenOptions& options,
                             std::shared_ptr<SimulatedState> state, InodePtr inode)
    : File(std::move(path), options.direct),
      writable_(options.mode != OpenMode::kRead),
      state_(std::move(state)),
      inode_(std::move(inode)) {
  ++inode_->open_files;
}

SimulatedFile::~SimulatedFile() {
  absl::MutexLock lock(&state_->mutex);
  --inode_->open_files;
}

absl::StatusOr<uint64_t> SimulatedFile::Size() const {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  return inode_->content.size();
}

absl::Status SimulatedFile::Allocate(uint64_t length) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  if (!writable_) {
    return base::ErrnoStatus(EBADF, "reserve", path());
  }
  const uint64_t before = inode_->content.allocated_bytes();
  MOMENT_RETURN_IF_ERROR(state_->CheckRoom(std::max(length, before) - before,
                                           absl::StrCat(length, " reserved bytes of ", path())));
  MOMENT_RETURN_IF_ERROR(state_->Count());
  inode_->content.Reset(length);
  return absl::OkStatus();
}

absl::StatusOr<InodePtr> SimulatedFileSystem::OpenInode(const std::string& path,
                                                        const OpenOptions& options) {
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  if (options.mode != OpenMode::kCreate) {
    MOMENT_ASSIGN_OR_RETURN(InodePtr inode, state_->tree().Require(path, "open"));
    if (inode->directory) {
      return absl::FailedPreconditionError(absl::StrCat("open ", path, ": not a regular file"));
    }
    return inode;
  }
  MOMENT_ASSIGN_OR_RETURN(const SimulatedTree::Place place, state_->tree().Locate(path, "create"));
  if (state_->tree().Find(path) != nullptr) {
    return base::ErrnoStatus(EEXIST, "create", path);
  }
  InodePtr inode = state_->tree().NewInode(false, options.permissions);
  MOMENT_RETURN_IF_ERROR(Change(place, inode));
  return inode;
}

absl::StatusOr<std::unique_ptr<File>> SimulatedFileSystem::Open(const std::string& path,
                                                                const OpenOptions& options) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_ASSIGN_OR_RETURN(InodePtr inode, OpenInode(path, options));
  return std::unique_ptr<File>(
      std::make_unique<SimulatedFile>(path, options, state_, std::move(inode)));
}

absl::Status SimulatedFileSystem::Change(const SimulatedTree::Place& place, const InodePtr& inode) {
  MOMENT_RETURN_IF_ERROR(state_->Count());
  state_->tree().Set(place, inode);
  return absl::OkStatus();
}

absl::Status SimulatedFileSystem::CreateDirectory(const std::string& path, uint32_t permissions) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  if (state_->tree().Find(path) != nullptr) {
    return base::ErrnoStatus(EEXIST, "create directory", path);
  }
  MOMENT_ASSIGN_OR_RETURN(const SimulatedTree::Place place,
                          state_->tree().Locate(path, "create directory"));
  return Change(place, state_->tree().NewInode(true, permissions));
}

absl::Status SimulatedFileSystem::CheckReplace(const std::string& from, const std::string& to,
                                               const InodePtr& moved,
                                               const InodePtr& replaced) const {
  int error = 0;
  if (moved->directory && absl::StartsWith(absl::StrCat(to, "/"), absl::StrCat(from, "/"))) {
    error = EINVAL;
  } else if (replaced != nullptr && replaced->directory != moved->directory) {
    error = replaced->directory ? EISDIR : ENOTDIR;
  } else if (replaced != nullptr && !replaced->entries.empty()) {
    error = ENOTEMPTY;
  }
  return error == 0 ? absl::OkStatus()
                    : base::ErrnoStatus(error, "rename", absl::StrCat(from, " to ", to));
}

absl::Status SimulatedFileSystem::Rename(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  MOMENT_ASSIGN_OR_RETURN(const SimulatedTree::Place source, state_->tree().Locate(from, "rename"));
  MOMENT_ASSIGN_OR_RETURN(const InodePtr moved, state_->tree().Require(from, "rename"));
  MOMENT_ASSIGN_OR_RETURN(const SimulatedTree::Place target, state_->tree().Locate(to, "rename"));
  const InodePtr replaced = state_->tree().Find(to);
  if (replaced == moved) {
    return absl::OkStatus();  // two names of one file: POSIX leaves both
  }
  MOMENT_RETURN_IF_ERROR(CheckReplace(from, to, moved, replaced));
  MOMENT_RETURN_IF_ERROR(state_->Count());
  state_->tree().Rename(source, target);
  return absl::OkStatus();
}

absl::Status SimulatedFileSystem::Link(const std::string& from, const std::string& to) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  MOMENT_ASSIGN_OR_RETURN(const InodePtr inode, state_->tree().Require(from, "link"));
  MOMENT_ASSIGN_OR_RETURN(const SimulatedTree::Place place, state_->tree().Locate(to, "link"));
  if (inode->directory || state_->tree().Find(to) != nullptr) {
    return base::ErrnoStatus(inode->directory ? EPERM : EEXIST, "link",
                             absl::StrCat(from, " as ", to));
  }
  return Change(place, inode);
}

absl::Status SimulatedFileSystem::Unlink(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  MOMENT_ASSIGN_OR_RETURN(const InodePtr inode, state_->tree().Require(path, "unlink"));
  if (inode->directory) {
    return base::ErrnoStatus(EISDIR, "unlink", path);
  }
  MOMENT_ASSIGN_OR_RETURN(const SimulatedTree::Place place, state_->tree().Locate(path, "unlink"));
  return Change(place, nullptr);
}

absl::Status SimulatedFileSystem::RemoveDirectory(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  MOMENT_ASSIGN_OR_RETURN(const InodePtr inode, state_->tree().Require(path, "remove directory"));
  if (!inode->directory || !inode->entries.empty()) {
    return base::ErrnoStatus(inode->directory ? ENOTEMPTY : ENOTDIR, "remove directory", path);
  }
  MOMENT_ASSIGN_OR_RETURN(const SimulatedTree::Place place,
                          state_->tree().Locate(path, "remove directory"));
  return Change(place, nullptr);
}

absl::Status SimulatedFileSystem::SetPermissions(const std::string& path, uint32_t permissions) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  MOMENT_ASSIGN_OR_RETURN(const InodePtr inode,
                          state_->tree().Require(path, "set the permissions of"));
  MOMENT_RETURN_IF_ERROR(state_->Count());
  inode->permissions = permissions;
  return absl::OkStatus();
}

absl::Status SimulatedFileSystem::SyncDirectory(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  MOMENT_ASSIGN_OR_RETURN(const InodePtr inode, state_->tree().Require(path, "open directory"));
  if (!inode->directory) {
    return base::ErrnoStatus(ENOTDIR, "open directory", path);
  }
  MOMENT_RETURN_IF_ERROR(state_->Count());
  state_->tree().SyncDirectory(inode);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> SimulatedFileSystem::List(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  MOMENT_ASSIGN_OR_RETURN(const InodePtr inode, state_->tree().Require(path, "list"));
  if (!inode->directory) {
    return base::ErrnoStatus(ENOTDIR, "list", path);
  }
  std::vector<std::string> names;
  for (const auto& [name, child] : inode->entries) {
    names.push_back(name);
  }
  return names;
}

absl::StatusOr<FileInfo> SimulatedFileSystem::Stat(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  MOMENT_ASSIGN_OR_RETURN(const InodePtr inode, state_->tree().Require(path, "stat"));
  FileInfo info;
  info.size_bytes = inode->content.size();
  info.allocated_bytes = inode->content.allocated_bytes();
  info.links = inode->links;
  info.inode = inode->number;
  info.permissions = inode->permissions;
  info.directory = inode->directory;
  return info;
}

absl::StatusOr<Space> SimulatedFileSystem::FreeSpace(const std::string& path) {
  absl::MutexLock lock(&state_->mutex);
  MOMENT_RETURN_IF_ERROR(state_->CheckPower());
  MOMENT_RETURN_IF_ERROR(state_->tree().Require(path, "ask the space of").status());
  constexpr uint64_t kUnboundedBytes = uint64_t{1} << 50;
  Space space;
  space.total_bytes = std::min(state_->faults.capacity_bytes, kUnboundedBytes);
  space.free_bytes =
      space.total_bytes - std::min(space.total_bytes, state_->tree().allocated_bytes());
  return space;
}

}  // namespace moment::io
