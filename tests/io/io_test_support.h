#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/memory.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"

namespace moment::io {

// A directory of its own under the system's temporary one, removed with all it holds.
class TemporaryDirectory {
 public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Puts a limit on the files of this process and takes it back: a write across it is cut short
// there, the next is refused with EFBIG.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(uint64_t limit_bytes);
  ~FileSizeLimit();
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

// Aligned memory with bytes drawn from the seed.
base::AlignedBuffer RandomBuffer(uint64_t length_bytes, uint64_t seed);
base::AlignedBuffer ZeroBuffer(uint64_t length_bytes);
bool SameBytes(const std::byte* left, const std::byte* right, uint64_t length_bytes);
std::vector<std::byte> Bytes(const std::string& text);

// Opens or creates a file, or fails the test.
std::unique_ptr<File> MustOpen(FileSystem& files, const std::string& path, OpenMode mode,
                               bool direct = false);

// Transfers submitted together, and the status of each.
class Batch {
 public:
  explicit Batch(IoEngine& engine) : engine_(engine) {}

  void Add(const Transfer& transfer);
  // Submits all and waits for all.
  void Run();
  // The two halves of Run.
  void Submit();
  void Wait();

  const absl::Status& status(size_t index) const { return entries_[index]->status; }
  absl::Status first_error() const;
  // Indices in the order of completion.
  const std::vector<size_t>& order() const { return order_; }

 private:
  struct Entry {
    Transfer transfer;
    absl::Status status;
    size_t index = 0;
    Batch* batch = nullptr;
  };

  static void Done(Transfer* transfer, absl::Status status) noexcept;

  IoEngine& engine_;
  std::vector<std::unique_ptr<Entry>> entries_;
  absl::Mutex mutex_;
  std::vector<size_t> order_;
  std::unique_ptr<absl::BlockingCounter> left_;
};

}  // namespace moment::io
