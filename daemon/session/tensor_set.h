#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "moment/v1/types.pb.h"

namespace moment::session {

// Calls `visit(tensor)` for each member of the set. INVALID_ARGUMENT naming `what` and the first
// index beyond `tensor_count`.
template <typename Visit>
absl::Status ForEachTensor(const v1::TensorSet& set, uint64_t tensor_count, absl::string_view what,
                           Visit visit);

// Membership by tensor. A tensor may stand in several runs.
absl::StatusOr<std::vector<bool>> Members(const v1::TensorSet& set, uint64_t tensor_count,
                                          absl::string_view what);

// Adds a tensor behind all that the set has.
void AppendTensor(uint32_t tensor, v1::TensorSet& set);

// The runs of the tensors for which `members` is true.
v1::TensorSet ToTensorSet(const std::vector<bool>& members);

absl::Status TensorOutOfRange(absl::string_view what, uint64_t tensor, uint64_t tensor_count);

template <typename Visit>
absl::Status ForEachTensor(const v1::TensorSet& set, uint64_t tensor_count, absl::string_view what,
                           Visit visit) {
  for (const v1::TensorRun& run : set.runs()) {
    const uint64_t end = uint64_t{run.first()} + run.count();
    if (end > tensor_count) {
      return TensorOutOfRange(what, end - 1, tensor_count);
    }
    for (uint64_t tensor = run.first(); tensor < end; ++tensor) {
      if (absl::Status status = visit(static_cast<uint32_t>(tensor)); !status.ok()) {
        return status;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace moment::session
