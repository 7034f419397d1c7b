#pragma once

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

// Links the files that the manifest's commit names; durable when it returns. On an error nothing of
// the pin stays (as far as the file system lets it be removed). ALREADY_EXISTS if there is one.
absl::Status MakePin(const Environment& environment, const std::string& directory,
                     const Layout& layout, const v1::PinManifest& manifest);

// Removes a pin, whole or half; OK if there is none. FAILED_PRECONDITION naming what is left if
// something else lies in it.
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
