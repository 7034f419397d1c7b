#pragma once

#include <cstdint>

namespace moment::device {

enum class DataType : uint8_t { kFloat32, kBFloat16, kFloat16 };

constexpr uint64_t SizeBytes(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

// An exact sequence of rounded operations; docs/internals/numerics.md.
enum class Profile : uint8_t {
  kTorchCpu,
  kTorchCuda,
  kTorchCudaForeach,
  kTorchCuda210,
  kTe,
  kTorchCpuIeee,  // kTorchCpu with a correctly rounded square root: torch without AVX-512
};

enum class AdamMode : uint8_t { kAdamW, kAdam };

// One group's hyperparameters in a step, as Python doubles.
struct Hyperparameters {
  double lr = 0;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
  AdamMode mode = AdamMode::kAdamW;
  bool bias_correction = true;
  bool maximize = false;
  float gradient_scale = 1.0f;
};

}  // namespace moment::device
