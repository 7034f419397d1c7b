#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "moment/v1/admin.pb.h"

namespace moment::store {

// The pins of a store's directory, as their files tell.
struct PinReport {
  std::vector<v1::PinSummary>
      pins;                 // in the order of their ids; `problem` where one cannot be read
  uint64_t held_bytes = 0;  // of files that the store has no name for, each once
};

// `inodes`: of the store's own bucket files. Pins that go away meanwhile are left out.
absl::StatusOr<PinReport> ReportPins(io::FileSystem& files, io::IoEngine& engine,
                                     const std::string& directory,
                                     const std::set<uint64_t>& inodes);

}  // namespace moment::store
