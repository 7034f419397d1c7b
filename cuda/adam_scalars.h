#pragma once

#include <cstdint>

#include "daemon/device/adam_constants.h"
#include "daemon/device/types.h"

// What the update of a tensor needs besides its state, one plain struct a profile: filled on the
// host, copied to the GPU as it is, completed there where torch computes on the GPU too
// (adam_arithmetic.h). docs/internals/numerics.md has the formulas.
namespace moment::cuda {

// The operations that come before each profile's own.
struct GradientScalars {
  float scale = 1;
  bool scales = false;
  bool negates = false;
};

// Hyperparameters rounded to fp32 first.
struct TorchCudaScalars {
  GradientScalars gradient;
  bool decays_parameter = false;
  bool decays_gradient = false;
  bool corrects_bias = true;
  float lr = 0;
  float beta1 = 0;
  float beta2 = 0;
  float eps = 0;
  float weight_decay = 0;
  float negative_decay = 0;  // -(lr * weight_decay)
  float t = 0;
  float step_size = 0;                 // completed: lr / (1 - beta1^t)
  float root_of_bias_correction2 = 1;  // completed: sqrt(1 - beta2^t)
};

// The scalars of torch's Python code are those of profile torch-cpu.
using TorchCudaForeachScalars = device::AdamConstants;

// Hyperparameters stay double.
struct TorchCuda210Scalars {
  GradientScalars gradient;
  bool decays_parameter = false;
  bool decays_gradient = false;
  bool corrects_bias = true;
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  double negative_decay = 0;  // -(lr * weight_decay)
  double t = 0;
  float step_size = 0;                 // completed
  float root_of_bias_correction2 = 1;  // completed
};

// Everything fp32; the bias corrections come from the host.
struct TeScalars {
  GradientScalars gradient;
  bool is_adamw = true;
  float negative_lr = 0;
  float beta1 = 0;
  float beta2 = 0;
  float gradient_weight = 0;         // 1 - beta1
  float gradient_square_weight = 0;  // 1 - beta2
  float bias_correction1 = 1;
  float bias_correction2 = 1;
  float eps = 0;
  float weight_decay = 0;
};

// `t` is 1 or more. Of t beyond 2^24 the torch profiles count 2^24 only, as torch does.
TorchCudaScalars MakeTorchCudaScalars(const device::Hyperparameters& hyperparameters, uint64_t t);
TorchCudaForeachScalars MakeTorchCudaForeachScalars(const device::Hyperparameters& hyperparameters,
                                                    uint64_t t);
TorchCuda210Scalars MakeTorchCuda210Scalars(const device::Hyperparameters& hyperparameters,
                                            uint64_t t);
TeScalars MakeTeScalars(const device::Hyperparameters& hyperparameters, uint64_t t);

}  // namespace moment::cuda
