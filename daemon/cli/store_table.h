#pragma once

#include <string>

#include "daemon/cli/console.h"
#include "moment/v1/admin.pb.h"

namespace moment::cli {

// An Open that was cut leaves a directory without store.json: nothing in it was ever acknowledged,
// and the next Open begins again.
bool OpenWasCut(const v1::StoreSummary& store);

// The human form of a list of stores: a table, below it why some cannot be read.
void PrintStores(const v1::ListResponse& list, const std::string& place, Console& console);

}  // namespace moment::cli
