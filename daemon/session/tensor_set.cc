#include "daemon/session/tensor_set.h"

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::session {

absl::StatusOr<std::vector<bool>> Members(const v1::TensorSet& set, uint64_t tensor_count,
                                          absl::string_view what) {
  std::vector<bool> members(tensor_count, false);
  MOMENT_RETURN_IF_ERROR(ForEachTensor(set, tensor_count, what, [&](uint32_t tensor) {
    members[tensor] = true;
    return absl::OkStatus();
  }));
  return members;
}

void AppendTensor(uint32_t tensor, v1::TensorSet& set) {
  v1::TensorRun* last = set.runs_size() == 0 ? nullptr : set.mutable_runs(set.runs_size() - 1);
  if (last != nullptr && last->first() + last->count() == tensor) {
    last->set_count(last->count() + 1);
  } else {
    v1::TensorRun* run = set.add_runs();
    run->set_first(tensor);
    run->set_count(1);
  }
}

v1::TensorSet ToTensorSet(const std::vector<bool>& members) {
  v1::TensorSet set;
  for (size_t tensor = 0; tensor < members.size(); ++tensor) {
    if (members[tensor]) {
      AppendTensor(static_cast<uint32_t>(tensor), set);
    }
  }
  return set;
}

absl::Status TensorOutOfRange(absl::string_view what, uint64_t tensor, uint64_t tensor_count) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": tensor ", tensor, " does not exist: the store has ", tensor_count));
}

}  // namespace moment::session
