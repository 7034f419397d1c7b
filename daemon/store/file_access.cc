#include "daemon/store/file_access.h"

#include <algorithm>
#include <cstring>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/errors.h"
#include "daemon/store/names.h"

namespace moment::store {

absl::StatusOr<base::AlignedBuffer> ReadAligned(io::IoEngine& engine, io::File& file,
                                                uint64_t offset, uint64_t length) {
  MOMENT_ASSIGN_OR_RETURN(base::AlignedBuffer buffer, base::AlignedBuffer::Allocate(length));
  MOMENT_RETURN_IF_ERROR(io::Read(engine, file, offset, buffer.data(), length));
  return buffer;
}

absl::Status WriteAligned(io::IoEngine& engine, io::File& file, uint64_t offset,
                          absl::string_view bytes) {
  const uint64_t length = base::RoundUp(bytes.size(), base::kIoAlignment);
  MOMENT_ASSIGN_OR_RETURN(base::AlignedBuffer buffer, base::AlignedBuffer::Allocate(length));
  std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return io::Write(engine, file, offset, buffer.data(), length);
}

namespace {

// What the engine's threads tell about the syncs of one SyncAll.
struct SyncResult {
  explicit SyncResult(int count) : left(count) {}

  absl::Mutex mutex;
  int left ABSL_GUARDED_BY(mutex);
  absl::Status status ABSL_GUARDED_BY(mutex);

  static void Done(io::Transfer* transfer, absl::Status status) noexcept {
    auto* result = static_cast<SyncResult*>(transfer->context);
    absl::MutexLock lock(&result->mutex);
    result->status.Update(status);
    --result->left;
  }
};

}  // namespace

absl::Status SyncAll(io::IoEngine& engine, const std::vector<io::File*>& files) {
  SyncResult result(static_cast<int>(files.size()));
  std::vector<io::Transfer> transfers(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    transfers[i].op = io::IoOp::kSync;
    transfers[i].file = files[i];
    transfers[i].done = &SyncResult::Done;
    transfers[i].context = &result;
    engine.Submit(&transfers[i]);
  }
  absl::MutexLock lock(&result.mutex);
  result.mutex.Await(absl::Condition(
      +[](int* left) { return *left == 0; }, &result.left));
  return result.status;
}

absl::StatusOr<std::string> ReadTextFile(io::FileSystem& files, io::IoEngine& engine,
                                         const std::string& path) {
  MOMENT_ASSIGN_OR_RETURN(const std::unique_ptr<io::File> file,
                          files.Open(path, {.mode = io::OpenMode::kRead}));
  MOMENT_ASSIGN_OR_RETURN(const uint64_t size, file->Size());
  if (size > kMaxTextBytes) {
    return absl::DataLossError(absl::StrCat(path, " at offset ", kMaxTextBytes, ": ", size,
                                            " bytes are too many for a text file of a store"));
  }
  std::string text(size, '\0');
  if (size > 0) {
    MOMENT_RETURN_IF_ERROR(
        io::Read(engine, *file, 0, reinterpret_cast<std::byte*>(text.data()), size));
  }
  return text;
}

absl::StatusOr<std::unique_ptr<io::File>> CreateTextFile(const Environment& environment,
                                                         const std::string& path,
                                                         absl::string_view text) {
  io::FileSystem& files = *environment.files;
  MOMENT_RETURN_IF_ERROR(UnlinkIfThere(files, path));
  MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<io::File> file,
                          files.Open(path, {.mode = io::OpenMode::kCreate,
                                            .permissions = environment.file_permissions}));
  MOMENT_RETURN_IF_ERROR(file->Allocate(text.size()));
  MOMENT_RETURN_IF_ERROR(io::Write(*environment.engine, *file, 0,
                                   reinterpret_cast<const std::byte*>(text.data()), text.size()));
  return file;
}

absl::Status WriteTextFile(const Environment& environment, const std::string& path,
                           const std::string& temporary, absl::string_view text) {
  {
    MOMENT_ASSIGN_OR_RETURN(const std::unique_ptr<io::File> file,
                            CreateTextFile(environment, temporary, text));
    MOMENT_RETURN_IF_ERROR(io::Sync(*environment.engine, *file));
  }
  MOMENT_RETURN_IF_ERROR(environment.files->Rename(temporary, path));
  return environment.files->SyncDirectory(ParentOf(path));
}

absl::StatusOr<bool> Exists(io::FileSystem& files, const std::string& path) {
  const absl::Status status = files.Stat(path).status();
  if (absl::IsNotFound(status)) {
    return false;
  }
  MOMENT_RETURN_IF_ERROR(status);
  return true;
}

absl::Status UnlinkIfThere(io::FileSystem& files, const std::string& path) {
  const absl::Status status = files.Unlink(path);
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

}  // namespace moment::store
