#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/pipeline/state_pipeline.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

// Groups and participants of a request as the pipeline takes them. INVALID_ARGUMENT naming the
// group and the tensor: an index beyond the store, a tensor in two groups, a participant in none.
// The recorded groups hold exactly the tensors that take part.
absl::StatusOr<pipeline::StepParameters> ResolveStep(const v1::StepRequest& request,
                                                     uint64_t tensor_count);

// FAILED_PRECONDITION naming the first tensor whose t after the step would not be what the trainer
// expects.
absl::Status CheckExpectedSteps(const v1::StepRequest& request,
                                const std::vector<uint32_t>& group_of,
                                const std::vector<uint64_t>& applied_t);

}  // namespace moment::session
