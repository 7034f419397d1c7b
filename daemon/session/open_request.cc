#include "daemon/session/open_request.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/base/errors.h"

namespace moment::session {
namespace {

constexpr size_t kMaxNameBytes = 1024;
constexpr uint32_t kMaxRanks = 100000;

absl::Status CheckName(absl::string_view name, absl::string_view what) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the ", what, " has ", name.size(),
                                                   " bytes; it must have 1 to ", kMaxNameBytes));
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const v1::OpenRequest& request) {
  for (int i = 0; i < request.tensors_size(); ++i) {
    if (request.tensors(i).member() >= static_cast<uint32_t>(request.members_size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", i, " (", request.tensors(i).name(), ") is of member ",
          request.tensors(i).member(), ", but there are ", request.members_size(), " members"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOpenRequest(const v1::OpenRequest& request) {
  MOMENT_RETURN_IF_ERROR(CheckName(request.name().job(), "job"));
  MOMENT_RETURN_IF_ERROR(CheckName(request.name().role(), "role"));
  if (request.name().rank() >= kMaxRanks) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", request.name().rank(),
                                                   " is too large; it must be below ", kMaxRanks));
  }
  if (request.members_size() == 0) {
    return absl::InvalidArgumentError("Open names no member; a store has at least one (opt0_0)");
  }
  MOMENT_RETURN_IF_ERROR(CheckTensors(request));
  if (request.blob_limit_bytes() > kMaxBlobBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "blob_limit_bytes is ", request.blob_limit_bytes(), "; the most is ", kMaxBlobBytes));
  }
  return absl::OkStatus();
}

std::string DescribeName(const v1::StoreName& name) {
  return absl::StrCat("job '", name.job(), "', role '", name.role(), "', rank ", name.rank());
}

std::string StoreKey(const v1::StoreName& name) {
  return absl::StrCat(name.rank(), "/", name.job().size(), "/", name.job(), "/", name.role());
}

}  // namespace moment::session
