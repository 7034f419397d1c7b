#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/base/memory.h"
#include "daemon/store/store.h"

// Blocking access to small files and to pieces of large ones, through aligned buffers so that it
// works for direct files as well.
namespace moment::store {

// `length` bytes at `offset`, both multiples of 4096.
absl::StatusOr<base::AlignedBuffer> ReadAligned(io::IoEngine& engine, io::File& file,
                                                uint64_t offset, uint64_t length);
// `bytes` at `offset`; padded with zeros to a multiple of 4096.
absl::Status WriteAligned(io::IoEngine& engine, io::File& file, uint64_t offset,
                          absl::string_view bytes);

// fdatasync of all of them at once; the first error.
absl::Status SyncAll(io::IoEngine& engine, const std::vector<io::File*>& files);

// A text file. NOT_FOUND if there is none; DATA_LOSS above `kMaxTextBytes`.
inline constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;
absl::StatusOr<std::string> ReadTextFile(io::FileSystem& files, io::IoEngine& engine,
                                         const std::string& path);
// Makes a text file with this content; replaces what was there. Durable after a sync of the file
// and one of its directory.
absl::StatusOr<std::unique_ptr<io::File>> CreateTextFile(const Environment& environment,
                                                         const std::string& path,
                                                         absl::string_view text);
// Durable under `path` when it returns: written as `temporary` in the same directory, synced,
// renamed. What was there as `temporary` is replaced.
absl::Status WriteTextFile(const Environment& environment, const std::string& path,
                           const std::string& temporary, absl::string_view text);

absl::StatusOr<bool> Exists(io::FileSystem& files, const std::string& path);
// OK as well if it is not there.
absl::Status UnlinkIfThere(io::FileSystem& files, const std::string& path);

}  // namespace moment::store
