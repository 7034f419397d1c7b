#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "daemon/device/device.h"
#include "daemon/device/types.h"

namespace moment::pipeline {

// The types of a test's tensors, all alike.
struct ModelTypes {
  device::DataType parameter = device::DataType::kFloat32;
  device::DataType gradient = device::DataType::kFloat32;
  device::DataType exp_avg = device::DataType::kFloat32;
  device::DataType exp_avg_sq = device::DataType::kFloat32;
};

// The state of one tensor, in the types of its segments.
struct ReferenceTensor {
  std::vector<std::byte> segments[device::kSegmentCount];
  std::vector<std::byte> parameter;
  uint64_t count = 0;
  uint64_t t = 0;
};

// The resident optimizer that streamed runs are held against: everything in memory, each tensor at
// once, by the kernels that tests/device holds against the plain definition of Adam.
class Reference {
 public:
  Reference(const std::vector<uint64_t>& sizes, const ModelTypes& types);

  // parameter bytes -> mains; moments and t zero (`keep`: as they are, and so are mains that round
  // to their parameter).
  void Refresh(size_t tensor, const std::vector<std::byte>& parameter, bool keep);
  // `gradients` by tensor; tensors whose group is UINT32_MAX sit out.
  void Step(const std::vector<std::vector<std::byte>>& gradients,
            const std::vector<device::Hyperparameters>& groups,
            const std::vector<uint32_t>& group_of);

  // `bytes` of this type -> the segment.
  void Write(size_t tensor, int segment, const std::vector<std::byte>& bytes,
             device::DataType type);
  void WriteZeros(size_t tensor, int segment);
  void SetT(size_t tensor, uint64_t t) { tensors_[tensor].t = t; }
  // The segment in this type.
  std::vector<std::byte> Read(size_t tensor, int segment, device::DataType type) const;
  // The parameter follows the main.
  void Materialize(size_t tensor);

  const std::vector<ReferenceTensor>& tensors() const { return tensors_; }
  const std::vector<std::byte>& Parameter(size_t tensor) const {
    return tensors_[tensor].parameter;
  }

 private:
  ModelTypes types_;
  std::vector<ReferenceTensor> tensors_;
};

// Reproducible values of a trainer: spread over several decades, some zero.
std::vector<std::byte> RandomValues(uint64_t seed, uint64_t count, device::DataType type);

}  // namespace moment::pipeline
