#include "daemon/access.h"

#include <grp.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace moment {

absl::StatusOr<std::optional<gid_t>> FindGroup(const std::string& name) {
  if (name.empty()) {
    return std::optional<gid_t>();
  }
  uint32_t number = 0;
  if (absl::SimpleAtoi(name, &number)) {
    return std::optional<gid_t>(number);
  }
  const group* const entry = ::getgrnam(name.c_str());
  if (entry == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("socket_group: there is no group ", name));
  }
  return std::optional<gid_t>(entry->gr_gid);
}

rpc::AccessList MakeAccessList(const config::Config& config, std::optional<gid_t> group) {
  rpc::AccessList access;
  access.uids = {0, ::geteuid()};
  access.uids.insert(access.uids.end(), config.allowed_uids.begin(), config.allowed_uids.end());
  access.gids = {config.allowed_gids.begin(), config.allowed_gids.end()};
  if (group.has_value()) {
    access.gids.push_back(*group);
  }
  return access;
}

}  // namespace moment
