#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace moment::io {

// An open file; moved by an IoEngine of the same kind (posix or simulated) that opened it.
class File {
 public:
  virtual ~File() = default;

  const std::string& path() const { return path_; }
  bool direct() const { return direct_; }
  // The descriptor; -1 for a simulated file.
  virtual int fd() const { return -1; }

  virtual absl::StatusOr<uint64_t> Size() const = 0;
  // Makes the file exactly `length` bytes with all blocks reserved and reading as zero: what it
  // held before is gone. Durable after a sync of the file. RESOURCE_EXHAUSTED if there is no room;
  // the file's bytes are then gone, or as they were.
  virtual absl::Status Allocate(uint64_t length) = 0;

 protected:
  File(std::string path, bool direct) : path_(std::move(path)), direct_(direct) {}

 private:
  std::string path_;
  bool direct_;
};

enum class OpenMode : uint8_t {
  kRead,
  kReadWrite,
  kCreate,  // read and write; ALREADY_EXISTS if it exists
};

struct OpenOptions {
  OpenMode mode = OpenMode::kRead;
  bool direct = false;  // O_DIRECT: addresses, offsets and lengths are multiples of 4096
  uint32_t permissions = 0640;
};

struct FileInfo {
  uint64_t size_bytes = 0;
  uint64_t allocated_bytes = 0;
  uint64_t links = 0;
  uint64_t inode = 0;
  uint32_t permissions = 0;
  bool directory = false;
};

struct Space {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

// The one door to names: everything that creates, links, renames, lists or removes. Synchronous,
// never on the step path. Thread-safe. A created, linked, renamed or removed name is durable only
// after SyncDirectory of its directory. Errors name the path and carry the system's text.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual absl::StatusOr<std::unique_ptr<File>> Open(const std::string& path,
                                                     const OpenOptions& options) = 0;
  virtual absl::Status CreateDirectory(const std::string& path, uint32_t permissions) = 0;
  virtual absl::Status Rename(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Unlink(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;
  virtual absl::Status SetPermissions(const std::string& path, uint32_t permissions) = 0;
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Names in a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(const std::string& path) = 0;
  virtual absl::StatusOr<FileInfo> Stat(const std::string& path) = 0;
  virtual absl::StatusOr<Space> FreeSpace(const std::string& path) = 0;
};

// The real one.
std::unique_ptr<FileSystem> CreatePosixFileSystem();

// Missing parents included; each new name is synced.
absl::Status CreateDirectories(FileSystem& files, const std::string& path, uint32_t permissions);

// What a directory can do, found by trying: a real aligned write and read.
struct DirectoryProbe {
  std::string file_system;   // "ext4", "xfs", "tmpfs", "overlay", "nfs", ...
  bool is_volatile = false;  // tmpfs, overlay
  bool is_network = false;   // nfs, cifs, ...: refused for state
  bool is_known = false;     // ext4, xfs, tmpfs, overlay: crash rules were checked for it
  bool direct_io = false;
  std::string direct_io_reason;  // why not
};
absl::StatusOr<DirectoryProbe> ProbeDirectory(const std::string& path);

}  // namespace moment::io
