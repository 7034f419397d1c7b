#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "daemon/store/bucket_file.h"
#include "daemon/store/checksum.h"
#include "daemon/store/file_access.h"
#include "daemon/store/inspect.h"
#include "daemon/store/offline.h"

// Every checksum of every live commit.
namespace moment::store {
namespace {

constexpr uint64_t kPieceUnits = 64;  // of 1 MiB: what a worker takes at a time
constexpr uint64_t kReadUnits = 4;    // of 1 MiB: what it reads at a time
constexpr absl::Duration kProgressPeriod = absl::Milliseconds(100);

// One file that a live commit names.
struct NamedFile {
  uint32_t bucket = 0;
  v1::BucketImage named;
  std::string path;
  std::unique_ptr<io::File> file;
  ChecksumTable table;
};

struct Piece {
  const NamedFile* file = nullptr;
  int segment = 0;
  uint64_t first_unit = 0;
  uint64_t units = 0;
};

v1::VerifyProblem Problem(const std::string& path, uint64_t offset, absl::string_view message) {
  v1::VerifyProblem problem;
  problem.set_path(path);
  problem.set_offset(offset);
  problem.set_message(std::string(message));
  return problem;
}

// The store's errors begin with "<path> at offset <n>: ".
v1::VerifyProblem ProblemOf(const std::string& path, const absl::Status& status) {
  absl::string_view message(status.message());
  uint64_t offset = 0;
  const std::string prefix = absl::StrCat(path, " at offset ");
  const size_t colon = message.find(": ", prefix.size());
  if (message.substr(0, prefix.size()) == prefix && colon != absl::string_view::npos &&
      absl::SimpleAtoi(message.substr(prefix.size(), colon - prefix.size()), &offset)) {
    message.remove_prefix(colon + 2);
  }
  return Problem(path, offset, message);
}

class Verifier {
 public:
  Verifier(io::FileSystem& files, io::IoEngine& engine, base::WorkerPool& workers,
           const std::string& directory, OfflineStore store, const VerifyOptions& options)
      : files_(files),
        engine_(engine),
        workers_(workers),
        directory_(directory),
        store_(std::move(store)),
        options_(options) {}

  absl::StatusOr<std::vector<v1::VerifyProblem>> Run() {
    FindFiles();
    for (NamedFile& file : named_) {
      if (const absl::Status status = Prepare(file); !status.ok()) {
        AddProblem(ProblemOf(file.path, status));
      } else {
        AddPieces(file);
      }
    }
    return RunPieces();
  }

 private:
  struct Task : base::WorkerPool::Task {
    Verifier* verifier = nullptr;
  };

  // Each file once, although several commits name it.
  void FindFiles() {
    std::set<std::pair<uint32_t, uint32_t>> seen;
    for (const v1::CommitRecord& commit : store_.commits) {
      for (int bucket = 0; bucket < commit.buckets_size(); ++bucket) {
        const v1::BucketImage& image = commit.buckets(bucket);
        const auto index = static_cast<uint32_t>(bucket);
        if (index < store_.layout->buckets().size() && seen.emplace(index, image.file()).second) {
          named_.push_back({.bucket = index,
                            .named = image,
                            .path = BucketFilePath(directory_, store_.layout->proto(),
                                                   store_.layout->buckets()[index], image.file())});
        }
      }
    }
  }

  // What is on the disk, not what the page cache remembers, where the file system lets us.
  absl::Status OpenFile(NamedFile& file) {
    absl::StatusOr<std::unique_ptr<io::File>> opened =
        files_.Open(file.path, {.mode = io::OpenMode::kRead, .direct = true});
    if (absl::IsInvalidArgument(opened.status())) {
      opened = files_.Open(file.path, {.mode = io::OpenMode::kRead});
    }
    if (absl::IsNotFound(opened.status())) {
      return absl::DataLossError("the file is missing");
    }
    MOMENT_RETURN_IF_ERROR(opened.status());
    file.file = *std::move(opened);
    return absl::OkStatus();
  }

  absl::Status Prepare(NamedFile& file) {
    MOMENT_RETURN_IF_ERROR(OpenFile(file));
    const v1::Layout& layout = store_.layout->proto();
    const BucketHeader header = BuildHeader(layout, layout.buckets(static_cast<int>(file.bucket)));
    MOMENT_RETURN_IF_ERROR(CheckBucketFile(engine_, *file.file, header));
    const ChecksumTableKey key{.store_uuid = store_.store.store_uuid(),
                               .bucket = file.bucket,
                               .file = file.named.file(),
                               .id = file.named.written_by()};
    MOMENT_ASSIGN_OR_RETURN(file.table, ReadNamedTable(engine_, *file.file, header.geometry, key,
                                                       file.named.checksums_digest()));
    return absl::OkStatus();
  }

  void AddPieces(const NamedFile& file) {
    const BucketGeometry& geometry = store_.layout->buckets()[file.bucket];
    for (int segment = 0; segment < kSegmentCount; ++segment) {
      const SegmentGeometry& place = geometry.segments[segment];
      total_ += place.length_bytes;
      for (uint64_t unit = 0; unit < place.units; unit += kPieceUnits) {
        pieces_.push_back({.file = &file,
                           .segment = segment,
                           .first_unit = unit,
                           .units = std::min(kPieceUnits, place.units - unit)});
      }
    }
  }

  absl::StatusOr<std::vector<v1::VerifyProblem>> RunPieces() {
    std::vector<Task> tasks(static_cast<size_t>(std::max(1, workers_.threads())));
    {
      absl::MutexLock lock(&mutex_);
      running_ = tasks.size();
    }
    for (Task& task : tasks) {
      task.verifier = this;
      task.run = [](base::WorkerPool::Task* posted) noexcept {
        static_cast<Task*>(posted)->verifier->Work();
      };
      workers_.Post(&task);
    }
    AwaitWorkers();
    absl::MutexLock lock(&mutex_);
    if (cancelled_) {
      return absl::CancelledError(absl::StrCat(directory_, ": verification was cancelled"));
    }
    std::sort(problems_.begin(), problems_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.path(), a.offset()) < std::pair(b.path(), b.offset());
    });
    return std::move(problems_);
  }

  void AwaitWorkers() {
    bool done = false;
    while (!done) {
      uint64_t bytes = 0;
      {
        absl::MutexLock lock(&mutex_);
        done = mutex_.AwaitWithTimeout(absl::Condition(this, &Verifier::AllEnded), kProgressPeriod);
        cancelled_ = cancelled_ || (!done && options_.cancelled && options_.cancelled());
        bytes = done && !cancelled_ ? total_ : done_bytes_;
      }
      if (options_.progress) {
        options_.progress(bytes, total_);
      }
    }
  }

  bool AllEnded() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return running_ == 0; }

  // A worker's part: pieces until there are no more.
  void Work() {
    absl::StatusOr<base::AlignedBuffer> buffer =
        base::AlignedBuffer::Allocate(kReadUnits * kChecksumUnitBytes);
    if (!buffer.ok()) {
      AddProblem(Problem(directory_, 0, buffer.status().message()));
    }
    while (buffer.ok()) {
      const Piece* piece = NextPiece();
      if (piece == nullptr) {
        break;
      }
      VerifyPiece(*piece, *buffer);
    }
    absl::MutexLock lock(&mutex_);
    --running_;
  }

  const Piece* NextPiece() {
    absl::MutexLock lock(&mutex_);
    return cancelled_ || next_piece_ == pieces_.size() ? nullptr : &pieces_[next_piece_++];
  }

  void VerifyPiece(const Piece& piece, const base::AlignedBuffer& buffer) {
    const uint64_t end = piece.first_unit + piece.units;
    for (uint64_t unit = piece.first_unit; unit < end; unit += kReadUnits) {
      VerifyUnits(piece, unit, std::min(kReadUnits, end - unit), buffer);
    }
  }

  void VerifyUnits(const Piece& piece, uint64_t first, uint64_t count,
                   const base::AlignedBuffer& buffer) {
    const NamedFile& file = *piece.file;
    const SegmentGeometry& place = store_.layout->buckets()[file.bucket].segments[piece.segment];
    const uint64_t begin = first * kChecksumUnitBytes;
    const uint64_t length = std::min(count * kChecksumUnitBytes, place.length_bytes - begin);
    const absl::Status status =
        io::Read(engine_, *file.file, place.offset + begin, buffer.data(), length);
    if (!status.ok()) {
      AddProblem(Problem(file.path, place.offset + begin, status.message()));
    }
    for (uint64_t i = 0; status.ok() && i < count; ++i) {
      const uint64_t at = i * kChecksumUnitBytes;
      const std::span<const std::byte> unit =
          buffer.span().subspan(at, std::min(kChecksumUnitBytes, length - at));
      if (Xxh64(unit) != file.table.checksums[place.first_checksum + first + i]) {
        AddProblem(Problem(file.path, place.offset + begin + at,
                           absl::StrCat("segment ", SegmentName(piece.segment), ": the unit of ",
                                        unit.size(), " bytes does not match its checksum")));
      }
    }
    absl::MutexLock lock(&mutex_);
    done_bytes_ += length;
  }

  void AddProblem(v1::VerifyProblem problem) {
    absl::MutexLock lock(&mutex_);
    problems_.push_back(std::move(problem));
  }

  io::FileSystem& files_;
  io::IoEngine& engine_;
  base::WorkerPool& workers_;
  const std::string directory_;
  const OfflineStore store_;
  const VerifyOptions& options_;
  std::vector<NamedFile> named_;
  std::vector<Piece> pieces_;  // complete before the workers begin
  uint64_t total_ = 0;

  absl::Mutex mutex_;
  size_t next_piece_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t running_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t done_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<v1::VerifyProblem> problems_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::vector<v1::VerifyProblem>> VerifyStore(io::FileSystem& files,
                                                           io::IoEngine& engine,
                                                           base::WorkerPool& workers,
                                                           const std::string& directory,
                                                           const VerifyOptions& options) {
  MOMENT_ASSIGN_OR_RETURN(OfflineStore store, ReadOffline(files, engine, directory));
  return Verifier(files, engine, workers, directory, std::move(store), options).Run();
}

}  // namespace moment::store
