#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/commit_files.h"
#include "daemon/store/file_table.h"
#include "daemon/store/layout.h"
#include "daemon/store/store.h"

// Reading a store back: what a record names, checked as far as it costs the same at any size.
namespace moment::store {

// store.json of a directory. NOT_FOUND if there is none.
absl::StatusOr<v1::StoreFile> LoadStoreFile(io::FileSystem& files, io::IoEngine& engine,
                                            const std::string& directory);

// The layout of this digest. DATA_LOSS naming the file if it is missing or damaged.
absl::StatusOr<std::shared_ptr<const Layout>> LoadLayout(io::FileSystem& files,
                                                         io::IoEngine& engine,
                                                         const std::string& directory,
                                                         uint64_t digest);

// The state that a record describes: checks length and header of each file, loads its checksum
// table and compares digest and key. DATA_LOSS naming file and offset.
absl::StatusOr<std::shared_ptr<State>> LoadState(io::IoEngine& engine, const std::string& directory,
                                                 const std::shared_ptr<const Layout>& layout,
                                                 const v1::CommitRecord& record,
                                                 const FileTable& files);

// The record of a state; digests by bucket.
v1::CommitRecord RecordOf(const State& state, const std::vector<uint64_t>& digests,
                          const std::string& store_uuid, uint64_t commit_every);

}  // namespace moment::store
