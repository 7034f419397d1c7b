#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/base/worker_pool.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "daemon/store/names.h"
#include "moment/v1/admin.pb.h"
#include "moment/v1/disk.pb.h"

// Read-only views of what lies in a state directory, for the CLI and the Admin service. Nothing
// here writes, takes a lock or needs the daemon that owns the directory: the caller holds the state
// directory's lock (shared), or knows that the files do not change. All functions are thread-safe
// and block.
namespace moment::store {

// Store file, newest layout, live commits (newest first, blobs left out) and bucket files of one
// store's directory. NOT_FOUND if there is no store.json; DATA_LOSS naming file and offset where
// store.json, a commit file or the newest layout cannot be read.
absl::StatusOr<v1::DescribeResponse> ReadStore(io::FileSystem& files, io::IoEngine& engine,
                                               const std::string& directory);

// Every store below <state_directory>/jobs, in the order of directory names; one that cannot be
// read is listed with `problem` set. `session` is left empty.
absl::StatusOr<std::vector<v1::StoreSummary>> ListStores(io::FileSystem& files,
                                                         io::IoEngine& engine,
                                                         const std::string& state_directory);

struct VerifyOptions {
  // Called from the calling thread, with growing `bytes_done`, the last time with both equal.
  std::function<void(uint64_t bytes_done, uint64_t bytes_total)> progress;
  // Checked between units: true ends the call with CANCELLED.
  std::function<bool()> cancelled;
};

// Reads every file that a live commit of the store in `directory` names and compares headers,
// checksum tables and the checksum of every unit. Files are verified in parallel on `workers`. Any
// damage is in the list (path, offset, message); the status is not OK only if the store cannot be
// read at all.
absl::StatusOr<std::vector<v1::VerifyProblem>> VerifyStore(io::FileSystem& files,
                                                           io::IoEngine& engine,
                                                           base::WorkerPool& workers,
                                                           const std::string& directory,
                                                           const VerifyOptions& options = {});

// One tensor of a safetensors header.
struct HeaderTensor {
  std::string name;
  std::string type;  // "F32", ...
  std::vector<uint64_t> shape;
  uint64_t offset = 0;  // in the file
  uint64_t length_bytes = 0;
};

// A bucket file by itself, without its store.
struct BucketFileView {
  std::string path;
  uint64_t size_bytes = 0;
  uint64_t header_bytes = 0;
  std::string member;
  uint32_t number = 0;                // of the bucket within its member
  std::vector<HeaderTensor> tensors;  // in the order of the file; pads and __checksums__ included
  // From the checksum table; has_checksums is false while no commit has written it.
  bool has_checksums = false;
  std::string store_uuid;
  uint32_t bucket = 0;  // index in the store's layout
  uint32_t file = 0;
  uint64_t written_by = 0;  // id
  uint64_t checksum_count = 0;
  uint64_t checksums_digest = 0;  // as a commit names it
};

// DATA_LOSS naming path and offset if it is not a bucket file.
absl::StatusOr<BucketFileView> DescribeBucketFile(io::FileSystem& files, io::IoEngine& engine,
                                                  const std::string& path);

// A commit file by itself.
struct CommitFileView {
  std::string path;
  uint64_t size_bytes = 0;
  bool copy_valid[2] = {false, false};
  bool empty = false;       // erased or never written: no record
  v1::CommitRecord record;  // of the first valid copy
};

absl::StatusOr<CommitFileView> DescribeCommitFile(io::FileSystem& files, io::IoEngine& engine,
                                                  const std::string& path);

}  // namespace moment::store
