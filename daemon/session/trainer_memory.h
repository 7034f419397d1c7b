#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/device/types.h"
#include "daemon/store/layout.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

// What an Attach says about the trainer's buffers: regions, where each tensor lies in them, and the
// element types of gradients. Checked as a whole; not thread-safe, its session guards it.
class TrainerMemory {
 public:
  // UNIMPLEMENTED for regions that this build cannot reach, INVALID_ARGUMENT naming the tensor for
  // a location beyond its region, FAILED_PRECONDITION for a generation that does not grow.
  static absl::StatusOr<TrainerMemory> Create(const v1::AttachRequest& request,
                                              const v1::Layout& layout,
                                              uint64_t previous_generation);

  uint64_t generation() const { return generation_; }
  const std::vector<device::DataType>& gradient_types() const { return gradient_types_; }
  // How each region is reached, in the order of the request.
  const std::vector<std::string>& transports() const { return transports_; }

  // A Step's own regions and gradient locations.
  absl::Status CheckGradients(const v1::StepRequest& request, const v1::Layout& layout) const;

 private:
  using Regions = absl::flat_hash_map<uint32_t, uint64_t>;  // length by region

  Regions regions_;
  uint64_t generation_ = 0;
  std::vector<device::DataType> gradient_types_;  // by tensor
  std::vector<std::string> transports_;
};

// INVALID_ARGUMENT naming `what` for types that no buffer may have.
absl::StatusOr<device::DataType> ToElementType(v1::DataType type, absl::string_view what);

uint64_t ElementCount(const v1::Tensor& tensor);

}  // namespace moment::session
