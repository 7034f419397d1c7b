#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/owners.h"

namespace moment::cuda {

// Single operations of the first GPU.
class GpuProbe {
 public:
  static absl::StatusOr<std::unique_ptr<GpuProbe>> Create();

  // Of the numbers whose bits are first_bits, first_bits + 1, ...
  absl::StatusOr<std::vector<float>> Reciprocals(uint32_t first_bits, uint32_t count);
  absl::StatusOr<std::vector<float>> SquareRoots(uint32_t first_bits, uint32_t count);
  // bases[i] to the power of exponents[i].
  absl::StatusOr<std::vector<float>> Powers(std::span<const float> bases,
                                            std::span<const float> exponents);

  const Context& context() const { return context_; }

 private:
  explicit GpuProbe(Context context) : context_(std::move(context)) {}
  absl::StatusOr<std::vector<float>> OfBits(const char* kernel, uint32_t first_bits,
                                            uint32_t count);
  absl::Status Launch(const char* kernel, uint32_t count, void** arguments);
  absl::StatusOr<std::vector<float>> Download(const DeviceMemory& memory, uint32_t count);

  const Context context_;
  Module module_;
  Stream stream_;
};

}  // namespace moment::cuda
