#include "daemon/session/device_choice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/errors.h"
#include "daemon/session/profile.h"

namespace moment::session {
namespace {

std::string Names(const std::vector<device::Device*>& devices) {
  return absl::StrJoin(devices, ", ", [](std::string* out, const device::Device* device) {
    absl::StrAppend(out, device->name());
  });
}

absl::StatusOr<std::vector<device::Device*>> Named(const std::vector<device::Device*>& devices,
                                                   const std::string& name) {
  for (device::Device* device : devices) {
    if (device->name() == name) {
      return std::vector<device::Device*>{device};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("this daemon has no device ", name, "; it has ",
                                                 Names(devices),
                                                 " (momentctl status says why a GPU is not used)"));
}

}  // namespace

absl::StatusOr<DeviceChoice> ChooseDevice(const std::vector<device::Device*>& devices,
                                          const std::string& buffers, v1::Profile profile) {
  std::vector<device::Device*> eligible = devices;
  if (!buffers.empty() && buffers != devices.front()->name()) {
    MOMENT_ASSIGN_OR_RETURN(eligible, Named(devices, buffers));
  }
  if (profile == v1::PROFILE_UNSPECIFIED) {
    return DeviceChoice{eligible.front(), WireProfile(eligible.front()->default_profile())};
  }
  MOMENT_ASSIGN_OR_RETURN(const device::Profile wanted, ProfileOf(profile));
  for (device::Device* device : eligible) {
    if (device->Supports(wanted)) {
      return DeviceChoice{device, profile};
    }
  }
  return absl::InvalidArgumentError(absl::StrCat("profile ", v1::Profile_Name(profile),
                                                 " is computed by none of the devices ",
                                                 Names(eligible), " of this daemon"));
}

}  // namespace moment::session
