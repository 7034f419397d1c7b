#pragma once

#include <cstdint>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/session/ring.h"

namespace moment {

// Rings of device::RingTransport with this many slots, registered with the devices, which outlive
// the rings.
session::MakeRing RingFactory(uint32_t slots, uint64_t slot_bytes,
                              const std::vector<device::Device*>& devices);

}  // namespace moment
