#pragma once

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/moment/moment.h"
#include "client/src/tensor_map.h"
#include "client/src/tensor_table.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::client {

// The caller's structs as requests of the wire. Pure functions; they check what only the client can
// see (pointers, indices, types); the rest is the daemon's to check.

absl::StatusOr<v1::OpenRequest> MakeOpenRequest(const moment_open_options& options);

// Elements and types of the options' tensors, in the caller's order.
std::vector<TensorMap::Tensor> DescribeTensors(const moment_open_options& options);

// What one step sends and binds.
struct StepPlan {
  v1::StepRequest request;                  // without session, sequence and ids
  std::vector<Buffer> gradients;            // by store index
  std::vector<moment_type> gradient_types;  // by caller's index, defaults resolved
};
absl::StatusOr<StepPlan> MakeStepPlan(const TensorMap& tensors, const moment_step_options& options);

// The types of gradients where they differ from the parameter's.
void FillGradientTypes(const TensorMap& tensors, const std::vector<moment_type>& types,
                       v1::AttachRequest& request);

// What a read or write of segments sends and binds.
struct SegmentPlan {
  google::protobuf::RepeatedPtrField<v1::SegmentBuffers> request;
  std::vector<SegmentBuffer> buffers;
  std::vector<bool> mains;  // by caller's index: its main is among them
};
// `writes`: a NULL means zeros.
absl::StatusOr<SegmentPlan> MakeSegmentPlan(const TensorMap& tensors,
                                            absl::Span<const moment_buffer> buffers, bool writes);

// t to set; tensors with the same t in one message.
absl::StatusOr<google::protobuf::RepeatedPtrField<v1::ExpectedSteps>> MakeSteps(
    const TensorMap& tensors, absl::Span<const moment_tensor_steps> steps);

// Parameter buffers by store index.
absl::StatusOr<std::vector<Buffer>> MakeParameterBuffers(const TensorMap& tensors,
                                                         absl::Span<void* const> parameters);

}  // namespace moment::client
