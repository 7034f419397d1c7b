#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda/gpu_settings.h"
#include "cuda/sharing_trial.h"
#include "daemon/cli/doctor_check.h"

namespace moment::cli {

// What the checks ask of the machine; tests put their own answers in its place.
struct GpuProbe {
  std::function<absl::StatusOr<cuda::GpuSurvey>()> survey;
  // Shares memory of this GPU with a second process and back.
  std::function<absl::Status(const std::string& uuid, cuda::Sharing sharing)> share;
};

// Driver, settings and sharing of every GPU. A machine without any is fine: not applicable.
Checks CheckGpus(const GpuProbe& probe);

}  // namespace moment::cli
