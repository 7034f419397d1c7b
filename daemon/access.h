#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/config/options.h"
#include "daemon/rpc/peer.h"

namespace moment {

// The group of a name or number; nullopt for "". INVALID_ARGUMENT if the system has no such group.
absl::StatusOr<std::optional<gid_t>> FindGroup(const std::string& name);

// Root, the daemon's own user, the sockets' group and what is configured.
rpc::AccessList MakeAccessList(const config::Config& config, std::optional<gid_t> group);

}  // namespace moment
