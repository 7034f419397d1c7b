#include "daemon/session/tensor_access.h"

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/session/tensor_set.h"
#include "daemon/session/trainer_memory.h"

namespace moment::session {
namespace {

using pipeline::Access;
using pipeline::TensorAccess;

constexpr uint64_t kLargestT = uint64_t{1} << 53;  // the last that a double counts to

absl::StatusOr<int> SegmentOf(absl::string_view call, absl::string_view name) {
  for (int segment = 0; segment < store::kSegmentCount; ++segment) {
    if (name == store::SegmentName(segment)) {
      return segment;
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(call, ": there is no segment \"", name,
                                                 "\"; there are main, exp_avg and exp_avg_sq"));
}

absl::Status AddBuffers(absl::string_view call, const v1::SegmentBuffers& buffers,
                        const v1::Layout& layout, std::vector<TensorAccess>& tensors) {
  MOMENT_ASSIGN_OR_RETURN(const int segment, SegmentOf(call, buffers.segment()));
  device::DataType type = device::DataType::kFloat32;
  if (!buffers.zeros()) {
    MOMENT_ASSIGN_OR_RETURN(type, ToElementType(buffers.type(), absl::StrCat(call, ": a buffer of ",
                                                                             buffers.segment())));
  }
  return ForEachTensor(buffers.tensors(), tensors.size(), call, [&](uint32_t tensor) {
    Access& access = tensors[tensor].access[segment];
    if (access != Access::kNone) {
      return absl::InvalidArgumentError(absl::StrCat(
          call, ": ", buffers.segment(), " of ", NameTensor(layout, tensor), " is listed twice"));
    }
    access = buffers.zeros() ? Access::kZeros : Access::kBuffer;
    tensors[tensor].types[segment] = type;
    return absl::OkStatus();
  });
}

}  // namespace

std::string NameTensor(const v1::Layout& layout, uint32_t tensor) {
  return absl::StrCat("tensor ", tensor, " (", layout.tensors(static_cast<int>(tensor)).name(),
                      ")");
}

absl::StatusOr<std::vector<TensorAccess>> ResolveBuffers(absl::string_view call,
                                                         const Buffers& buffers,
                                                         const v1::Layout& layout,
                                                         bool takes_zeros) {
  std::vector<TensorAccess> tensors(static_cast<size_t>(layout.tensors_size()));
  for (const v1::SegmentBuffers& listed : buffers) {
    if (listed.zeros() && !takes_zeros) {
      return absl::InvalidArgumentError(
          absl::StrCat(call, ": ", listed.segment(), " is listed without buffers"));
    }
    MOMENT_RETURN_IF_ERROR(AddBuffers(call, listed, layout, tensors));
  }
  return tensors;
}

absl::StatusOr<std::vector<std::pair<uint32_t, uint64_t>>> ResolveSteps(const Steps& steps,
                                                                        const v1::Layout& layout) {
  const auto count = static_cast<uint64_t>(layout.tensors_size());
  std::vector<std::pair<uint32_t, uint64_t>> resolved;
  std::vector<bool> given(count);
  for (const v1::ExpectedSteps& listed : steps) {
    MOMENT_RETURN_IF_ERROR(ForEachTensor(listed.tensors(), count, "steps", [&](uint32_t tensor) {
      if (given[tensor] || listed.t() > kLargestT) {
        return absl::InvalidArgumentError(absl::StrCat(
            "t of ", NameTensor(layout, tensor),
            given[tensor] ? " is given twice" : absl::StrCat(" is ", listed.t(), ", above 2^53")));
      }
      given[tensor] = true;
      resolved.emplace_back(tensor, listed.t());
      return absl::OkStatus();
    }));
  }
  return resolved;
}

Steps ToSteps(const std::vector<uint64_t>& t, const std::vector<bool>& members) {
  Steps steps;
  absl::flat_hash_map<uint64_t, v1::ExpectedSteps*> by_t;
  for (size_t tensor = 0; tensor < std::min(t.size(), members.size()); ++tensor) {
    if (!members[tensor]) {
      continue;
    }
    v1::ExpectedSteps*& of_t = by_t[t[tensor]];
    if (of_t == nullptr) {
      of_t = steps.Add();
      of_t->set_t(t[tensor]);
    }
    AppendTensor(static_cast<uint32_t>(tensor), *of_t->mutable_tensors());
  }
  return steps;
}

}  // namespace moment::session
