#include "cuda/adam_reference.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "cuda/adam_arithmetic.h"
#include "cuda/power_float.h"
#include "cuda/scalar_table.h"

namespace moment::cuda {
namespace {

// This file is compiled without contraction: each line below rounds as often as it says.
struct ProcessorOperations {
  const Approximations& approximations;

  static float Add(float a, float b) { return a + b; }
  static float Subtract(float a, float b) { return a - b; }
  static float Multiply(float a, float b) { return a * b; }
  static float MultiplyAdd(float a, float b, float c) { return std::fma(a, b, c); }
  static float Divide(float a, float b) { return a / b; }
  static float SquareRoot(float a) { return std::sqrt(a); }
  float Power(float base, float exponent) const {
    return PowerFloat(base, exponent, approximations.reciprocal);
  }

  static double Add(double a, double b) { return a + b; }
  static double Subtract(double a, double b) { return a - b; }
  static double Multiply(double a, double b) { return a * b; }
  static double MultiplyAdd(double a, double b, double c) { return std::fma(a, b, c); }
  static double Divide(double a, double b) { return a / b; }
  static double SquareRoot(double a) { return std::sqrt(a); }
  static double Power(double base, double exponent) { return std::pow(base, exponent); }
};

float Flush(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

struct FlushingOperations : ProcessorOperations {
  static float AddFlush(float a, float b) { return Flush(Flush(a) + Flush(b)); }
  static float MultiplyFlush(float a, float b) { return Flush(Flush(a) * Flush(b)); }
  static float MultiplyAddFlush(float a, float b, float c) {
    return Flush(std::fma(Flush(a), Flush(b), Flush(c)));
  }
  float ReciprocalApproximate(float x) const { return Flush(approximations.reciprocal(Flush(x))); }
  float SquareRootApproximate(float x) const { return Flush(approximations.square_root(Flush(x))); }
};

template <typename Which, typename Operations>
device::AdamElement UpdateAs(const Operations& operations, const std::byte* entry, float gradient,
                             device::AdamElement element) {
  typename Which::Scalars scalars;
  std::memcpy(&scalars, entry, sizeof(scalars));
  Which::Complete(operations, scalars);
  return Which::Update(operations, scalars, gradient, element);
}

}  // namespace

const Approximations& ExactApproximations() {
  static constexpr Approximations kExact = {[](float x) { return 1.0f / x; },
                                            [](float x) { return std::sqrt(x); }};
  return kExact;
}

device::AdamElement AdamUpdate(device::Profile profile, const std::byte* scalars, float gradient,
                               device::AdamElement element, const Approximations& approximations) {
  const ProcessorOperations operations{approximations};
  switch (profile) {
    case device::Profile::kTorchCuda210:
      return UpdateAs<TorchCuda210>(operations, scalars, gradient, element);
    case device::Profile::kTorchCudaForeach:
      return UpdateAs<TorchCudaForeach>(operations, scalars, gradient, element);
    case device::Profile::kTe:
      return UpdateAs<Te>(FlushingOperations{{approximations}}, scalars, gradient, element);
    default:
      return UpdateAs<TorchCuda>(operations, scalars, gradient, element);
  }
}

device::AdamElement AdamUpdate(device::Profile profile, const device::Hyperparameters& h,
                               uint64_t t, float gradient, device::AdamElement element,
                               const Approximations& approximations) {
  std::byte scalars[kMaxScalarBytes];
  WriteScalars(profile, h, t, scalars);
  return AdamUpdate(profile, scalars, gradient, element, approximations);
}

}  // namespace moment::cuda
