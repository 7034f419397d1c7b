#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "daemon/store/layout.h"
#include "daemon/store/store.h"
#include "moment/v1/disk.pb.h"

// pins/<id>/ of a store's directory: a hard link to each file of one commit, as
// <member>/bucket00000.safetensors, and manifest.json, which is written last when a pin is made and
// removed first when it is dropped: without it a pin is a half of one. Nothing here takes a lock.
namespace moment::store {

// INVALID_ARGUMENT unless the id can be a directory's name: 1 to 64 letters, digits, '-' and '_'.
absl::Status CheckPinId(absl::string_view id);

// Makes one pin, in three steps so that one sync serves as many changes as possible. After an error
// of one of them RemovePin removes what was made.
class PinMaker {
 public:
  PinMaker(const Environment& environment, std::string directory,
           std::shared_ptr<const Layout> layout, v1::PinManifest manifest);

  // Links the files that the manifest's commit names, and writes the manifest under its temporary
  // name. Nothing of it is durable. ALREADY_EXISTS, and nothing made, if there is such a pin.
  absl::Status Link();
  // Makes all of that durable, then gives the manifest its name.
  absl::Status Complete();
  // Makes that durable, and the modes of the linked files.
  absl::Status Sync();

 private:
  absl::Status SyncDirectories(const std::set<std::string>& directories) const;

  const Environment environment_;
  const std::string directory_;  // of the store
  const std::shared_ptr<const Layout> layout_;
  const v1::PinManifest manifest_;
  const std::string pin_;
  std::set<std::string> linked_;   // directories of the store's files
  std::set<std::string> members_;  // and of the links
  std::unique_ptr<io::File> manifest_file_;
};

// Removes a pin, whole or half, and pins/ with the last one; OK if there is none.
// FAILED_PRECONDITION naming what is left if something else lies in it.
absl::Status RemovePin(io::FileSystem& files, const std::string& directory, const std::string& id);

// Ids of what lies in pins/, halves too.
absl::StatusOr<std::vector<std::string>> PinIds(io::FileSystem& files,
                                                const std::string& directory);

// The manifest of a pin. NOT_FOUND for a half; DATA_LOSS if it cannot be read.
absl::StatusOr<v1::PinManifest> LoadPin(io::FileSystem& files, io::IoEngine& engine,
                                        const std::string& directory, const std::string& id);

// Where the pin's link to a bucket's file is.
std::string PinnedFilePath(const std::string& directory, absl::string_view id,
                           const v1::Layout& layout, const BucketGeometry& geometry);

}  // namespace moment::store
