#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/io/file_system.h"
#include "daemon/io/simulated_state.h"

namespace moment::io {

// An open file of a simulated disk. Thread-safe.
class SimulatedFile : public File {
 public:
  // The state's lock is held.
  SimulatedFile(std::string path, const OpenOptions& options, std::shared_ptr<SimulatedState> state,
                InodePtr inode);
  ~SimulatedFile() override;

  absl::StatusOr<uint64_t> Size() const override;
  absl::Status Allocate(uint64_t length) override;

  bool writable() const { return writable_; }
  bool IsOf(const SimulatedState& state) const { return state_.get() == &state; }
  // Guarded by the state's lock.
  SimulatedInode& inode() const { return *inode_; }

 private:
  const bool writable_;
  const std::shared_ptr<SimulatedState> state_;
  const InodePtr inode_;
};

// Names of a simulated disk. Thread-safe.
class SimulatedFileSystem : public FileSystem {
 public:
  explicit SimulatedFileSystem(std::shared_ptr<SimulatedState> state) : state_(std::move(state)) {}

  absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path,
                                             const OpenOptions& options) override;
  absl::Status CreateDirectory(const std::string& path, uint32_t permissions) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Link(const std::string& from, const std::string& to) override;
  absl::Status Unlink(const std::string& path) override;
  absl::Status RemoveDirectory(const std::string& path) override;
  absl::Status SetPermissions(const std::string& path, uint32_t permissions) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override;
  absl::StatusOr<FileInfo> Stat(const std::string& path) override;
  absl::StatusOr<Space> FreeSpace(const std::string& path) override;

 private:
  absl::StatusOr<InodePtr> OpenInode(const std::string& path, const OpenOptions& options)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  // Numbers the operation, then gives the place its inode (null: removes the name).
  absl::Status Change(const SimulatedTree::Place& place, const InodePtr& inode)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex);
  absl::Status CheckReplace(const std::string& from, const std::string& to, const InodePtr& moved,
                            const InodePtr& replaced) const;

  const std::shared_ptr<SimulatedState> state_;
};

}  // namespace moment::io
