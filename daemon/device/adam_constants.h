#pragma once

#include <cstdint>

#include "daemon/device/types.h"

namespace moment::device {

// What Adam's update of a tensor needs besides the state: computed in double as torch's Python code
// does, each rounded to fp32 once, as torch's operators do with their scalars.
struct AdamConstants {
  float gradient_scale = 1;
  float parameter_factor = 1;  // 1 - lr * weight_decay (AdamW)
  float weight_decay = 0;      // added to the gradient (Adam)
  float lerp_weight = 0;       // 1 - beta1
  float beta2 = 0;
  float gradient_square_weight = 0;    // 1 - beta2
  float root_of_bias_correction2 = 1;  // sqrt(1 - beta2^t)
  float eps = 0;
  float negative_step_size = 0;  // -lr / (1 - beta1^t)

  bool scales_gradient = false;
  bool negates_gradient = false;
  bool decays_parameter = false;
  bool decays_gradient = false;
  bool lerps_from_start = false;  // torch's lerp: from the nearer end
  bool ieee_square_root = false;
};

// `profile` is kTorchCpu or kTorchCpuIeee; `t` is 1 or more. Of t beyond 2^24 only 2^24 counts, as
// in torch, whose step is an fp32 number that stands still there.
AdamConstants MakeAdamConstants(const Hyperparameters& hyperparameters, uint64_t t,
                                Profile profile);

}  // namespace moment::device
