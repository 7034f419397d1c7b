#pragma once

#include <string>

#include "daemon/cli/console.h"
#include "daemon/store/inspect.h"

namespace moment::cli {

void PrintBucketFile(const store::BucketFileView& file, bool tensors, Console& console);
std::string BucketFileDocument(const store::BucketFileView& file, const std::string& place);

void PrintCommitFile(const store::CommitFileView& file, Console& console);
std::string CommitFileDocument(const store::CommitFileView& file, const std::string& place);

}  // namespace moment::cli
