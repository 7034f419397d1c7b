#include "daemon/session/profile.h"

#include "absl/strings/str_cat.h"

namespace moment::session {

absl::StatusOr<device::Profile> ProfileOf(v1::Profile profile) {
  switch (profile) {
    case v1::PROFILE_TORCH_CPU:
      return device::Profile::kTorchCpu;
    case v1::PROFILE_TORCH_CPU_IEEE:
      return device::Profile::kTorchCpuIeee;
    case v1::PROFILE_TORCH_CUDA:
      return device::Profile::kTorchCuda;
    case v1::PROFILE_TORCH_CUDA_FOREACH:
      return device::Profile::kTorchCudaForeach;
    case v1::PROFILE_TORCH_CUDA_210:
      return device::Profile::kTorchCuda210;
    case v1::PROFILE_TE:
      return device::Profile::kTe;
    default:
      return absl::InvalidArgumentError(absl::StrCat("profile ", static_cast<int>(profile),
                                                     " is not known to this version of momentd"));
  }
}

v1::Profile WireProfile(device::Profile profile) {
  switch (profile) {
    case device::Profile::kTorchCpu:
      return v1::PROFILE_TORCH_CPU;
    case device::Profile::kTorchCpuIeee:
      return v1::PROFILE_TORCH_CPU_IEEE;
    case device::Profile::kTorchCuda:
      return v1::PROFILE_TORCH_CUDA;
    case device::Profile::kTorchCudaForeach:
      return v1::PROFILE_TORCH_CUDA_FOREACH;
    case device::Profile::kTorchCuda210:
      return v1::PROFILE_TORCH_CUDA_210;
    case device::Profile::kTe:
      return v1::PROFILE_TE;
  }
  return v1::PROFILE_UNSPECIFIED;
}

}  // namespace moment::session
