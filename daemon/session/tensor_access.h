#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/pipeline/tensor_access.h"
#include "moment/v1/disk.pb.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

using Buffers = google::protobuf::RepeatedPtrField<v1::SegmentBuffers>;
using Steps = google::protobuf::RepeatedPtrField<v1::ExpectedSteps>;

// The buffers of a ReadTensor or WriteTensor as the pipeline takes them, by tensor.
// INVALID_ARGUMENT naming segment and tensor: an unknown segment, a type that no buffer may have, a
// tensor beyond the store, one that is listed twice; zeros where only buffers make sense.
absl::StatusOr<std::vector<pipeline::TensorAccess>> ResolveBuffers(absl::string_view call,
                                                                   const Buffers& buffers,
                                                                   const v1::Layout& layout,
                                                                   bool takes_zeros);

// Tensor and t of each that is listed. INVALID_ARGUMENT naming the tensor: beyond the store, listed
// twice, a t above 2^53.
absl::StatusOr<std::vector<std::pair<uint32_t, uint64_t>>> ResolveSteps(const Steps& steps,
                                                                        const v1::Layout& layout);

// t of the tensors for which `members` is true; tensors with the same t in one message.
Steps ToSteps(const std::vector<uint64_t>& t, const std::vector<bool>& members);

// "tensor 3 (weight)".
std::string NameTensor(const v1::Layout& layout, uint32_t tensor);

}  // namespace moment::session
