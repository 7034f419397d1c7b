#include "tests/cuda/gpu_approximations.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "tests/cuda/gpu_probe.h"

namespace moment::cuda {
namespace {

constexpr uint32_t kOne = 0x3f800000u;
constexpr uint32_t kMantissas = 1u << 23;

struct Tables {
  std::vector<float> reciprocals;   // of [1, 2)
  std::vector<float> square_roots;  // of [1, 4)
};

std::vector<float> OrDie(absl::StatusOr<std::vector<float>> values) {
  if (!values.ok()) {
    std::cerr << values.status() << std::endl;
    std::abort();
  }
  return *std::move(values);
}

const Tables& GpuTables() {
  static const Tables& tables = *[] {
    const auto probe = GpuProbe::Create();
    if (!probe.ok()) {
      std::cerr << probe.status() << std::endl;
      std::abort();
    }
    return new Tables{OrDie((*probe)->Reciprocals(kOne, kMantissas)),
                      OrDie((*probe)->SquareRoots(kOne, 2 * kMantissas))};
  }();
  return tables;
}

int ExponentOf(uint32_t bits) { return static_cast<int>(bits >> 23 & 0xffu) - 127; }

float Reciprocal(float x) {
  if (!std::isnormal(x)) {
    return 1.0f / x;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float magnitude =
      std::ldexp(GpuTables().reciprocals[bits & (kMantissas - 1)], -ExponentOf(bits));
  return std::copysign(magnitude, x);
}

float SquareRoot(float x) {
  if (!std::isnormal(x) || x < 0) {
    return std::sqrt(x);
  }
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int odd = ExponentOf(bits) & 1;
  const uint32_t index = (bits & (kMantissas - 1)) + (odd != 0 ? kMantissas : 0);
  return std::ldexp(GpuTables().square_roots[index], (ExponentOf(bits) - odd) / 2);
}

}  // namespace

const Approximations& GpuApproximations() {
  static constexpr Approximations kApproximations = {&Reciprocal, &SquareRoot};
  return kApproximations;
}

}  // namespace moment::cuda
