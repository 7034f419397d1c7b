#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "moment/v1/types.pb.h"

namespace moment::session {

struct DeviceChoice {
  device::Device* device = nullptr;
  v1::Profile profile = v1::PROFILE_UNSPECIFIED;
};

// The device that computes a store whose trainer has its buffers on the device `buffers` ("": not
// said). Buffers on a GPU are computed there; those on the host, by the first device that computes
// the profile, since the ring brings them to any. Without a profile it is the default of where the
// buffers are. INVALID_ARGUMENT naming what there is, if no device fits. `devices` is not empty:
// the host comes first.
absl::StatusOr<DeviceChoice> ChooseDevice(const std::vector<device::Device*>& devices,
                                          const std::string& buffers, v1::Profile profile);

}  // namespace moment::session
