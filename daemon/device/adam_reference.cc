#include "daemon/device/adam_reference.h"

#include <cmath>

#include "daemon/device/square_root.h"

namespace moment::device {

AdamElement AdamUpdate(const AdamConstants& c, float gradient, AdamElement element) {
  float g = gradient;
  float p = element.main;
  if (c.scales_gradient) {
    g = g * c.gradient_scale;
  }
  if (c.negates_gradient) {
    g = -g;
  }
  if (c.decays_parameter) {  // param.mul_(1 - lr * weight_decay)
    p = p * c.parameter_factor;
  }
  if (c.decays_gradient) {  // grad.add(param, alpha=weight_decay)
    g = std::fma(p, c.weight_decay, g);
  }
  // exp_avg.lerp_(grad, 1 - beta1)
  const float distance = g - element.exp_avg;
  const float m = c.lerps_from_start ? std::fma(c.lerp_weight, distance, element.exp_avg)
                                     : std::fma(c.lerp_weight - 1.0f, distance, g);
  // exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
  const float decayed = element.exp_avg_sq * c.beta2;
  const float v = std::fma(c.gradient_square_weight * g, g, decayed);
  // denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps)
  const float root = c.ieee_square_root ? std::sqrt(v) : SquareRootMkl(v);
  const float denominator = root / c.root_of_bias_correction2 + c.eps;
  // param.addcdiv_(exp_avg, denom, value=-step_size)
  p = p + (c.negative_step_size * m) / denominator;
  return {p, m, v};
}

}  // namespace moment::device
