#include "cuda/adam_scalars.h"

#include <algorithm>
#include <cmath>

namespace moment::cuda {
namespace {

using device::AdamMode;
using device::Hyperparameters;

constexpr uint64_t kLastStepOfTorch = uint64_t{1} << 24;

double TorchStep(uint64_t t) { return static_cast<double>(std::min(t, kLastStepOfTorch)); }

GradientScalars MakeGradientScalars(const Hyperparameters& h) {
  return {h.gradient_scale, h.gradient_scale != 1.0f, h.maximize};
}

}  // namespace

TorchCudaScalars MakeTorchCudaScalars(const Hyperparameters& h, uint64_t t) {
  TorchCudaScalars scalars;
  scalars.gradient = MakeGradientScalars(h);
  scalars.corrects_bias = h.bias_correction;
  scalars.lr = static_cast<float>(h.lr);
  scalars.beta1 = static_cast<float>(h.beta1);
  scalars.beta2 = static_cast<float>(h.beta2);
  scalars.eps = static_cast<float>(h.eps);
  scalars.weight_decay = static_cast<float>(h.weight_decay);
  scalars.negative_decay = -(scalars.lr * scalars.weight_decay);
  scalars.decays_parameter = scalars.weight_decay != 0 && h.mode == AdamMode::kAdamW;
  scalars.decays_gradient = scalars.weight_decay != 0 && h.mode == AdamMode::kAdam;
  scalars.t = static_cast<float>(TorchStep(t));
  return scalars;
}

TorchCudaForeachScalars MakeTorchCudaForeachScalars(const Hyperparameters& h, uint64_t t) {
  return device::MakeAdamConstants(h, t, device::Profile::kTorchCudaForeach);
}

TorchCuda210Scalars MakeTorchCuda210Scalars(const Hyperparameters& h, uint64_t t) {
  TorchCuda210Scalars scalars;
  scalars.gradient = MakeGradientScalars(h);
  scalars.corrects_bias = h.bias_correction;
  scalars.lr = h.lr;
  scalars.beta1 = h.beta1;
  scalars.beta2 = h.beta2;
  scalars.eps = h.eps;
  scalars.weight_decay = h.weight_decay;
  scalars.negative_decay = -(h.lr * h.weight_decay);
  scalars.decays_parameter = h.weight_decay != 0 && h.mode == AdamMode::kAdamW;
  scalars.decays_gradient = h.weight_decay != 0 && h.mode == AdamMode::kAdam;
  scalars.t = TorchStep(t);
  return scalars;
}

TeScalars MakeTeScalars(const Hyperparameters& h, uint64_t t) {
  TeScalars scalars;
  scalars.gradient = MakeGradientScalars(h);
  scalars.is_adamw = h.mode == AdamMode::kAdamW;
  scalars.negative_lr = -static_cast<float>(h.lr);
  scalars.beta1 = static_cast<float>(h.beta1);
  scalars.beta2 = static_cast<float>(h.beta2);
  scalars.gradient_weight = 1 - scalars.beta1;
  scalars.gradient_square_weight = 1 - scalars.beta2;
  if (h.bias_correction) {
    const double step = static_cast<double>(t);
    scalars.bias_correction1 =
        static_cast<float>(1 - std::pow(static_cast<double>(scalars.beta1), step));
    scalars.bias_correction2 =
        static_cast<float>(1 - std::pow(static_cast<double>(scalars.beta2), step));
  }
  scalars.eps = static_cast<float>(h.eps);
  scalars.weight_decay = static_cast<float>(h.weight_decay);
  return scalars;
}

}  // namespace moment::cuda
