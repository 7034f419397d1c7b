#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/device/types.h"
#include "daemon/session/imports.h"
#include "daemon/store/layout.h"
#include "moment/v1/admin.pb.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

// What an Attach says about the trainer's buffers: regions, where each tensor lies in them, and the
// element types of gradients. Checked as a whole; not thread-safe, its session guards it.
class TrainerMemory {
 public:
  // Opens the regions. INVALID_ARGUMENT naming the tensor for a location beyond its region or not
  // aligned to its elements, FAILED_PRECONDITION for a generation that does not grow; errors of
  // Imports::Hold. `imports` outlives it.
  static absl::StatusOr<TrainerMemory> Create(const v1::AttachRequest& request,
                                              const v1::Layout& layout,
                                              uint64_t previous_generation, Imports& imports,
                                              const Imports::TakeDescriptor& take);

  uint64_t generation() const { return generation_; }
  const std::vector<device::DataType>& gradient_types() const { return gradient_types_; }
  // How each region is reached, in the order of the request.
  const std::vector<v1::RegionStatus>& regions() const { return described_; }
  // How the trainer's memory is reached, as a word or two: "cuda_ipc", "cuda_ipc, ring".
  std::string transport() const;
  // The parameters on the GPU, by tensor; null: the ring serves it.
  const std::vector<std::byte*>& parameters() const { return parameters_; }

  // The gradients of a step that lie on the GPU, by tensor; null: the ring serves it. Opens the
  // step's own regions.
  absl::StatusOr<std::vector<const std::byte*>> LocateGradients(
      const v1::StepRequest& request, const v1::Layout& layout,
      const Imports::TakeDescriptor& take) const;

 private:
  struct RegionMemory {
    uint64_t length_bytes = 0;
    std::byte* data = nullptr;  // on the GPU; null: the ring
  };
  using Regions = absl::flat_hash_map<uint32_t, RegionMemory>;

  absl::Status AddRegions(const Imports::Regions& given, Regions& regions) const;
  static absl::StatusOr<std::byte*> Locate(const v1::TensorLocation& location,
                                           const v1::Layout& layout, const Regions& regions,
                                           uint64_t element_bytes, absl::string_view what);

  Imports* imports_ = nullptr;
  Regions regions_;
  uint64_t generation_ = 0;
  std::vector<device::DataType> gradient_types_;  // by tensor
  std::vector<v1::RegionStatus> described_;
  std::vector<std::byte*> parameters_;
  std::vector<std::byte*> gradients_;  // static ones
};

// INVALID_ARGUMENT naming `what` for types that no buffer may have.
absl::StatusOr<device::DataType> ToElementType(v1::DataType type, absl::string_view what);

uint64_t ElementCount(const v1::Tensor& tensor);

}  // namespace moment::session
