#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/fd.h"
#include "daemon/io/file_system.h"

namespace moment::io {

// A regular file by descriptor. Thread-safe.
class PosixFile : public File {
 public:
  // NOT_FOUND, ALREADY_EXISTS, PERMISSION_DENIED by the system's word; FAILED_PRECONDITION when it
  // is no regular file; INVALID_ARGUMENT when the file system refuses direct I/O.
  static absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path,
                                                    const OpenOptions& options);

  int fd() const override { return fd_.get(); }
  absl::StatusOr<uint64_t> Size() const override;
  absl::Status Allocate(uint64_t length) override;

 private:
  PosixFile(std::string path, bool direct, base::UniqueFd fd)
      : File(std::move(path), direct), fd_(std::move(fd)) {}

  base::UniqueFd fd_;
};

}  // namespace moment::io
