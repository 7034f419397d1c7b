#include "daemon/device/adam_constants.h"

#include <algorithm>
#include <cmath>

namespace moment::device {
namespace {

constexpr uint64_t kLastStepOfTorch = uint64_t{1} << 24;

}  // namespace

AdamConstants MakeAdamConstants(const Hyperparameters& hyperparameters, uint64_t t,
                                Profile profile) {
  const Hyperparameters& h = hyperparameters;
  double bias_correction1 = 1;
  double bias_correction2 = 1;
  if (h.bias_correction) {
    const double step = static_cast<double>(std::min(t, kLastStepOfTorch));
    bias_correction1 = 1 - std::pow(h.beta1, step);
    bias_correction2 = 1 - std::pow(h.beta2, step);
  }
  AdamConstants constants;
  constants.gradient_scale = h.gradient_scale;
  constants.scales_gradient = h.gradient_scale != 1.0f;
  constants.negates_gradient = h.maximize;
  constants.parameter_factor = static_cast<float>(1 - h.lr * h.weight_decay);
  constants.decays_parameter = h.weight_decay != 0 && h.mode == AdamMode::kAdamW;
  constants.weight_decay = static_cast<float>(h.weight_decay);
  constants.decays_gradient = h.weight_decay != 0 && h.mode == AdamMode::kAdam;
  constants.lerp_weight = static_cast<float>(1 - h.beta1);
  constants.lerps_from_start = std::fabs(constants.lerp_weight) < 0.5f;
  constants.beta2 = static_cast<float>(h.beta2);
  constants.gradient_square_weight = static_cast<float>(1 - h.beta2);
  // Python's x ** 0.5 is pow, not sqrt: they can differ in the last place.
  constants.root_of_bias_correction2 = static_cast<float>(std::pow(bias_correction2, 0.5));
  constants.eps = static_cast<float>(h.eps);
  constants.negative_step_size = static_cast<float>(-(h.lr / bias_correction1));
  constants.ieee_square_root = profile == Profile::kTorchCpuIeee;
  return constants;
}

}  // namespace moment::device
