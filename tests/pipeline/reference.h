#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/device/adam_constants.h"
#include "daemon/device/types.h"

namespace moment::pipeline {

// The types of a test's tensors, all alike.
struct ModelTypes {
  device::DataType parameter = device::DataType::kFloat32;
  device::DataType gradient = device::DataType::kFloat32;
  device::DataType exp_avg = device::DataType::kFloat32;
  device::DataType exp_avg_sq = device::DataType::kFloat32;
};

// The values of one tensor, as fp32 (already rounded to the types of the segments).
struct ReferenceTensor {
  std::vector<float> main;
  std::vector<float> exp_avg;
  std::vector<float> exp_avg_sq;
  uint64_t t = 0;
};

// The resident optimizer that streamed runs are held against: everything in memory, one element
// after the other, by the plain definition of Adam.
class Reference {
 public:
  Reference(const std::vector<uint64_t>& sizes, const ModelTypes& types);

  // parameter bytes -> mains; moments and t zero (`keep`: as they are).
  void Refresh(size_t tensor, const std::vector<std::byte>& parameter, bool keep);
  // `gradients` by tensor; tensors whose group is UINT32_MAX sit out.
  void Step(const std::vector<std::vector<std::byte>>& gradients,
            const std::vector<device::Hyperparameters>& groups,
            const std::vector<uint32_t>& group_of);

  const std::vector<ReferenceTensor>& tensors() const { return tensors_; }
  std::vector<std::byte> Parameter(size_t tensor) const;

 private:
  ModelTypes types_;
  std::vector<ReferenceTensor> tensors_;
};

// Bytes of a type <-> fp32.
std::vector<float> Widen(const std::byte* bytes, uint64_t count, device::DataType type);
std::vector<std::byte> Narrow(const std::vector<float>& values, device::DataType type);

// Reproducible values of a trainer: spread over several decades, some zero.
std::vector<std::byte> RandomValues(uint64_t seed, uint64_t count, device::DataType type);

}  // namespace moment::pipeline
