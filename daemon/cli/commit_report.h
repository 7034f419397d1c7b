#pragma once

#include <cstdint>
#include <vector>

#include "daemon/cli/console.h"
#include "moment/v1/disk.pb.h"

namespace moment::cli {

// The human form of a commit; `layout`, where it is known, gives buckets their names.
void PrintCommit(const v1::CommitRecord& commit, const v1::Layout* layout, Console& console);

// t of each tensor that the commit names.
std::vector<uint64_t> StepsByTensor(const v1::CommitRecord& commit);

}  // namespace moment::cli
