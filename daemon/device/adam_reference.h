#pragma once

#include "daemon/device/adam_constants.h"

namespace moment::device {

// One element of the state, widened to fp32.
struct AdamElement {
  float main = 0;
  float exp_avg = 0;
  float exp_avg_sq = 0;
};

// The element after one step: the plain definition of profiles torch-cpu and torch-cpu-ieee, every
// rounded operation written out. All kernels give the same bits (of a NaN only that it is one).
AdamElement AdamUpdate(const AdamConstants& constants, float gradient, AdamElement element);

}  // namespace moment::device
