#include "daemon/cli/gpu_checks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace moment::cli {
namespace {

using cuda::Sharing;

constexpr char kDriver[] = "driver";
constexpr const char* kSettings[] = {"compute-mode", "mps", "mig", "confidential"};

const char* SharingName(Sharing sharing) {
  return sharing == Sharing::kHandle ? "ipc-handle" : "ipc-descriptor";
}

Check JudgeDriver(const absl::StatusOr<cuda::GpuSurvey>& survey) {
  if (!survey.ok()) {
    const std::string finding(survey.status().message());
    if (absl::IsNotFound(survey.status()) || absl::IsUnimplemented(survey.status())) {
      return {kDriver, "", Verdict::kNotApplicable, finding,
              "momentd computes on the host; for a GPU, install its driver and give the container "
              "the GPU"};
    }
    return {kDriver, "", Verdict::kFailure, finding,
            "install a driver for this build's CUDA, or run with gpu = none"};
  }
  std::string finding = absl::StrCat("for CUDA ", survey->cuda_version);
  if (!survey->driver_version.empty()) {
    absl::StrAppend(&finding, ", version ", survey->driver_version);
  }
  for (const cuda::GpuSettings& gpu : survey->gpus) {
    absl::StrAppend(&finding, "; ", gpu.uuid, " (", gpu.model, ")");
  }
  if (!survey->nvml_reason.empty()) {
    return {kDriver, "", Verdict::kWarning, absl::StrCat(finding, "; ", survey->nvml_reason),
            "status cannot show the size of contexts, and confidential computing is inferred: let "
            "the container have the driver's utility libraries (NVIDIA_DRIVER_CAPABILITIES=utility,"
            "compute)"};
  }
  return Fine(kDriver, "", finding);
}

// What cannot be used is a failure here: who runs doctor wants the GPU.
Check JudgeSetting(const char* setting, const cuda::GpuSettings& gpu) {
  const std::vector<cuda::GpuNote> notes = cuda::NotesOn(gpu);
  const auto note = std::find_if(notes.begin(), notes.end(), [setting](const cuda::GpuNote& each) {
    return each.setting == setting;
  });
  if (note == notes.end()) {
    return Fine(setting, gpu.uuid, "nothing in the way");
  }
  return {setting, gpu.uuid, note->prevents ? Verdict::kFailure : Verdict::kWarning, gpu.model,
          note->text};
}

Check JudgeSharing(const GpuProbe& probe, const cuda::GpuSettings& gpu, Sharing sharing) {
  const char* const name = SharingName(sharing);
  if (const auto prevents = cuda::WhatPreventsUse(gpu)) {
    return {name, gpu.uuid, Verdict::kNotApplicable, absl::StrCat("not tried: ", prevents->setting),
            ""};
  }
  const absl::Status shared = probe.share(gpu.uuid, sharing);
  if (shared.ok()) {
    return Fine(name, gpu.uuid, "memory written here was read by a second process, and back");
  }
  const std::string finding(shared.message());
  if (absl::IsResourceExhausted(shared)) {
    return {name, gpu.uuid, Verdict::kWarning, finding,
            "the trial needs two contexts of about 530 MiB each: free memory of the GPU and try "
            "again"};
  }
  return {name, gpu.uuid, Verdict::kWarning, finding,
          "momentd uses the other way, or the ring, which copies: see that trainer and daemon see "
          "the same GPU and driver, and have different process numbers"};
}

}  // namespace

Checks CheckGpus(const GpuProbe& probe) {
  const absl::StatusOr<cuda::GpuSurvey> survey = probe.survey();
  Checks checks = {JudgeDriver(survey)};
  if (!survey.ok()) {
    for (const char* setting : kSettings) {
      checks.push_back(NotApplicable(setting, "no GPU"));
    }
    checks.push_back(NotApplicable(SharingName(Sharing::kHandle), "no GPU"));
    checks.push_back(NotApplicable(SharingName(Sharing::kDescriptor), "no GPU"));
    return checks;
  }
  for (const cuda::GpuSettings& gpu : survey->gpus) {
    for (const char* setting : kSettings) {
      checks.push_back(JudgeSetting(setting, gpu));
    }
    checks.push_back(JudgeSharing(probe, gpu, Sharing::kHandle));
    checks.push_back(JudgeSharing(probe, gpu, Sharing::kDescriptor));
  }
  return checks;
}

}  // namespace moment::cli
