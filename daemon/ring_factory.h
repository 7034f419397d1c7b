#pragma once

#include <cstdint>

#include "daemon/session/ring.h"

namespace moment {

// Rings of device::RingTransport with this many slots.
session::MakeRing RingFactory(uint32_t slots, uint64_t slot_bytes);

}  // namespace moment
