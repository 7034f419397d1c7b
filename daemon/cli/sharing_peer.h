#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "cuda/sharing_trial.h"

namespace moment::cli {

// The hidden subcommand that is the second process.
inline constexpr const char* kSharingPeerCommand = "sharing-peer";

// Shares a piece of the GPU's memory with a second process, which this program is again, and back.
// DEADLINE_EXCEEDED if that one takes longer than `timeout`; it is ended then.
absl::Status TrySharing(const std::string& uuid, cuda::Sharing sharing, absl::Duration timeout);

}  // namespace moment::cli
