// The kernels behind a C function each, for the comparison with torch in tests/python.
#include <cstdint>

#include "daemon/device/adam_constants.h"
#include "daemon/device/kernels.h"
#include "daemon/device/square_root.h"

using moment::device::AdamArrays;
using moment::device::AdamMode;
using moment::device::AdamTypes;
using moment::device::DataType;
using moment::device::Hyperparameters;
using moment::device::InstructionSet;
using moment::device::Profile;

extern "C" {

// Mirrored by tests/python/kernel_library.py. Types and modes are the numbers of the enums.
struct MomentAdamCall {
  double lr, beta1, beta2, eps, weight_decay;
  float gradient_scale;
  uint8_t is_adam, bias_correction, maximize, ieee_square_root;
  uint64_t t, count;
  uint8_t instruction_set, exp_avg_type, exp_avg_sq_type, gradient_type, parameter_type;
  void* main;
  void* exp_avg;
  void* exp_avg_sq;
  const void* gradient;
  void* parameter;
};

int moment_available(uint8_t instruction_set) {
  return moment::device::Available(static_cast<InstructionSet>(instruction_set)) ? 1 : 0;
}

// The square root of profile torch-cpu.
void moment_square_root(const float* radicands, float* roots, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    roots[i] = moment::device::SquareRootMkl(radicands[i]);
  }
}

void moment_adam(const MomentAdamCall* call) {
  Hyperparameters hyperparameters;
  hyperparameters.lr = call->lr;
  hyperparameters.beta1 = call->beta1;
  hyperparameters.beta2 = call->beta2;
  hyperparameters.eps = call->eps;
  hyperparameters.weight_decay = call->weight_decay;
  hyperparameters.mode = call->is_adam != 0 ? AdamMode::kAdam : AdamMode::kAdamW;
  hyperparameters.bias_correction = call->bias_correction != 0;
  hyperparameters.maximize = call->maximize != 0;
  hyperparameters.gradient_scale = call->gradient_scale;
  const AdamTypes types{
      static_cast<DataType>(call->exp_avg_type), static_cast<DataType>(call->exp_avg_sq_type),
      static_cast<DataType>(call->gradient_type), static_cast<DataType>(call->parameter_type)};
  AdamArrays arrays;
  arrays.main_in = arrays.main_out = call->main;
  arrays.exp_avg_in = arrays.exp_avg_out = call->exp_avg;
  arrays.exp_avg_sq_in = arrays.exp_avg_sq_out = call->exp_avg_sq;
  arrays.gradient = call->gradient;
  arrays.parameter = call->parameter;
  arrays.count = call->count;
  const Profile profile = call->ieee_square_root != 0 ? Profile::kTorchCpuIeee : Profile::kTorchCpu;
  const auto set = static_cast<InstructionSet>(call->instruction_set);
  moment::device::FindAdamKernel(set, types)(
      moment::device::MakeAdamConstants(hyperparameters, call->t, profile), arrays);
}

}  // extern "C"
