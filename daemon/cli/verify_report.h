#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "daemon/cli/console.h"
#include "daemon/cli/exit_code.h"
#include "moment/v1/admin.pb.h"

namespace moment::cli {

// What verifying one store found.
struct VerifiedStore {
  std::string label;      // its name, or its directory
  v1::StoreName name;     // no job: not known
  std::string directory;  // "": not known
  uint64_t size_bytes = 0;
  double seconds = 0;
  std::vector<v1::VerifyProblem> problems;
  std::string skipped;  // why there was nothing to verify; "" if there was
  absl::Status error;   // why it could not be verified, though nothing is known to be damaged
};

std::string VerifyDocument(const std::vector<VerifiedStore>& stores, const std::string& place);
void PrintVerified(const std::vector<VerifiedStore>& stores, const std::string& place,
                   Console& console);

// kCorruption if anything is damaged, else kFailed if a store could not be verified.
ExitCode ExitCodeOfVerified(const std::vector<VerifiedStore>& stores);

}  // namespace moment::cli
