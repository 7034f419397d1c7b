#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "daemon/store/layout.h"
#include "moment/v1/disk.pb.h"

namespace moment::store {

// What a store's directory says, read without changing anything.
struct OfflineStore {
  v1::StoreFile store;
  std::vector<v1::CommitRecord> commits;  // live ones, newest first
  std::shared_ptr<const Layout> layout;   // of the newest commit; null if no layout is there
};

// Errors as ReadStore (inspect.h).
absl::StatusOr<OfflineStore> ReadOffline(io::FileSystem& files, io::IoEngine& engine,
                                         const std::string& directory);

}  // namespace moment::store
