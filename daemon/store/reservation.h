#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/store/bucket_file.h"
#include "daemon/store/file_table.h"
#include "daemon/store/layout.h"
#include "daemon/store/store.h"

namespace moment::store {

// The bucket files of one store: finds those there are, makes what is missing, removes what nothing
// names. Used by Open, and by Begin for one image more. Not thread-safe.
class Reservation {
 public:
  Reservation(const Environment& environment, std::string directory,
              std::shared_ptr<const Layout> layout);

  const std::shared_ptr<FileTable>& files() const { return files_; }

  // Opens the bucket files on disk into files(); remembers those of buckets that the layout does
  // not have.
  absl::Status Scan();

  // Checks length and header of the files that no record names, and repairs what is otherwise (an
  // Open that was cut leaves such). What was repaired is in `warnings`.
  absl::Status CheckUnused(std::vector<std::string>& warnings);

  // Makes files until every bucket has three writable ones; durable when it returns. On an error
  // (RESOURCE_EXHAUSTED: no room) everything that this object made is removed again.
  absl::Status Complete();

  // Makes one more file of each of these buckets. Durable when it returns; on an error nothing of
  // it stays.
  absl::Status Add(const std::vector<uint32_t>& buckets);

  // What Add has to make when these files, one a bucket, are not written any more: three other
  // writable ones, and one with a higher number. A bucket stands there as often as it lacks files.
  std::vector<uint32_t> MissingWithout(const std::vector<uint32_t>& numbers) const;

  // RESOURCE_EXHAUSTED if there is no room for one more file of each of these buckets.
  absl::Status CheckSpace(const std::vector<uint32_t>& buckets) const;

  // Removes what FileTable calls surplus, and the files of buckets that the layout does not have.
  absl::Status RemoveSurplus();

  // Removes the names of bucket files from a store's directory; durable when it returns.
  static absl::Status RemoveFiles(const Environment& environment, const std::string& directory,
                                  const Layout& layout,
                                  const std::vector<FileTable::FileName>& names);

  // Removes every bucket file and member directory of a store's directory, known to a layout or
  // not.
  static absl::Status RemoveAll(io::FileSystem& files, const std::string& directory);

 private:
  using BucketKey = std::pair<std::string, uint32_t>;  // directory name of the member, number

  absl::Status ScanDirectory(const std::string& name);
  absl::Status OpenFound(uint32_t bucket, uint32_t number, const std::string& path);
  absl::Status MakeDirectories();
  absl::Status MakeAll(const std::vector<uint32_t>& buckets);
  absl::Status Finish(absl::Status status);
  absl::Status Make(uint32_t bucket);
  absl::Status RemoveOrphans();
  absl::Status SyncTouched();
  void Undo();
  std::string PathOf(uint32_t bucket, uint32_t number) const;
  BucketHeader HeaderOf(uint32_t bucket) const;

  const Environment environment_;
  const std::string directory_;
  const std::shared_ptr<const Layout> layout_;
  const std::shared_ptr<FileTable> files_;
  absl::btree_map<BucketKey, uint32_t> bucket_index_;
  std::vector<std::string> orphans_;                 // paths of files
  std::vector<std::string> orphan_directories_;      // paths
  std::vector<std::pair<uint32_t, uint32_t>> made_;  // bucket, number
  std::vector<std::string> made_directories_;
  std::vector<std::string> touched_;  // directories to sync
};

}  // namespace moment::store
