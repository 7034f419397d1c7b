#pragma once

#include "daemon/cli/console.h"
#include "moment/v1/admin.pb.h"

namespace moment::cli {

// The human form of a store: what it is, members, commits, bucket files; with `tensors` each of
// them as well.
void PrintStore(const v1::DescribeResponse& store, bool tensors, Console& console);

}  // namespace moment::cli
