#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/io/file_system.h"

namespace moment::store {

// Another file system, of which every call that changes a name or a mode is counted, and one of
// them made to fail.
class WatchedFileSystem : public io::FileSystem {
 public:
  explicit WatchedFileSystem(io::FileSystem& files) : files_(files) {}

  uint64_t changes() const { return changes_; }
  // The nth change from here on fails with INTERNAL, and is not made; 0: none.
  void FailChange(uint64_t n) { fail_at_ = n == 0 ? 0 : changes_ + n; }

  absl::StatusOr<std::unique_ptr<io::File>> Open(const std::string& path,
                                                 const io::OpenOptions& options) override {
    if (options.mode == io::OpenMode::kCreate) {
      if (absl::Status status = Count(); !status.ok()) {
        return status;
      }
    }
    return files_.Open(path, options);
  }
  absl::Status CreateDirectory(const std::string& path, uint32_t permissions) override {
    const absl::Status status = Count();
    return status.ok() ? files_.CreateDirectory(path, permissions) : status;
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    const absl::Status status = Count();
    return status.ok() ? files_.Rename(from, to) : status;
  }
  absl::Status Link(const std::string& from, const std::string& to) override {
    const absl::Status status = Count();
    return status.ok() ? files_.Link(from, to) : status;
  }
  absl::Status Unlink(const std::string& path) override {
    const absl::Status status = Count();
    return status.ok() ? files_.Unlink(path) : status;
  }
  absl::Status RemoveDirectory(const std::string& path) override {
    const absl::Status status = Count();
    return status.ok() ? files_.RemoveDirectory(path) : status;
  }
  absl::Status SetPermissions(const std::string& path, uint32_t permissions) override {
    const absl::Status status = Count();
    return status.ok() ? files_.SetPermissions(path, permissions) : status;
  }
  absl::Status SyncDirectory(const std::string& path) override {
    const absl::Status status = Count();
    return status.ok() ? files_.SyncDirectory(path) : status;
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return files_.List(path);
  }
  absl::StatusOr<io::FileInfo> Stat(const std::string& path) override { return files_.Stat(path); }
  absl::StatusOr<io::Space> FreeSpace(const std::string& path) override {
    return files_.FreeSpace(path);
  }

 private:
  absl::Status Count() {
    ++changes_;
    return changes_ == fail_at_ ? absl::InternalError("this change was made to fail")
                                : absl::OkStatus();
  }

  io::FileSystem& files_;
  uint64_t changes_ = 0;
  uint64_t fail_at_ = 0;
};

}  // namespace moment::store
