#include "daemon/devices.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"
#include "daemon/device/host_device.h"

namespace moment {
namespace {

bool AsksForAll(const config::Config& config) {
  return config.gpus == std::vector<std::string>{"auto"};
}

std::string Uuids(const std::vector<cuda::GpuSettings>& gpus) {
  return absl::StrJoin(gpus, ", ", [](std::string* out, const cuda::GpuSettings& gpu) {
    absl::StrAppend(out, gpu.uuid);
  });
}

absl::StatusOr<cuda::GpuSettings> Named(const std::vector<cuda::GpuSettings>& gpus,
                                        const std::string& uuid) {
  const auto found = std::find_if(gpus.begin(), gpus.end(),
                                  [&](const cuda::GpuSettings& gpu) { return gpu.uuid == uuid; });
  if (found == gpus.end()) {
    return absl::NotFoundError(
        absl::StrCat("this process sees no GPU ", uuid, "; it sees ", Uuids(gpus)));
  }
  return *found;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Devices>> Devices::Open(const config::Config& config,
                                                       base::WorkerPool& workers,
                                                       const GpuDoor& door) {
  auto devices = std::make_unique<Devices>();
  devices->Add(std::make_unique<device::HostDevice>(workers));
  MOMENT_RETURN_IF_ERROR(devices->OpenGpus(config, door));
  return devices;
}

absl::Status Devices::OpenGpus(const config::Config& config, const GpuDoor& door) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<cuda::GpuSettings> chosen, Choose(config, door));
  cuda::CudaDeviceOptions options;
  options.staging_bytes = config.gpu_staging_bytes;
  options.slots = static_cast<int>(config.gpu_slots);
  for (const cuda::GpuSettings& gpu : chosen) {
    for (const cuda::GpuNote& note : cuda::NotesOn(gpu)) {
      Notice(gpu.uuid, note);
    }
    if (const std::optional<cuda::GpuNote> prevents = cuda::WhatPreventsUse(gpu)) {
      if (AsksForAll(config)) {
        continue;
      }
      return absl::FailedPreconditionError(
          absl::StrCat("GPU ", gpu.uuid, " cannot be used: ", prevents->text));
    }
    MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<device::Device> device, door.open(gpu.uuid, options));
    gpus_.push_back(device.get());
    Add(std::move(device));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<cuda::GpuSettings>> Devices::Choose(const config::Config& config,
                                                               const GpuDoor& door) {
  std::vector<cuda::GpuSettings> chosen;
  if (config.gpus == std::vector<std::string>{"none"}) {
    spdlog::info("event=gpu detail={}", base::Quoted("none: gpu = none"));
    return chosen;
  }
  absl::StatusOr<cuda::GpuSurvey> survey = door.survey();
  if (!AsksForAll(config)) {
    MOMENT_RETURN_IF_ERROR(base::WithContext(survey.status(), "gpu"));
    for (const std::string& uuid : config.gpus) {
      MOMENT_ASSIGN_OR_RETURN(cuda::GpuSettings named, Named(survey->gpus, uuid));
      chosen.push_back(std::move(named));
    }
    return chosen;
  }
  if (survey.ok()) {
    return std::move(survey->gpus);
  }
  const std::string reason(survey.status().message());
  notices_.push_back({"", "driver", false, reason});
  spdlog::info("event=gpu detail={}", base::Quoted(reason));
  return chosen;
}

void Devices::Notice(const std::string& uuid, const cuda::GpuNote& note) {
  notices_.push_back({uuid, note.setting, note.prevents, note.text});
  spdlog::warn("event=gpu name={} setting={} used={} detail={}", uuid, note.setting,
               note.prevents ? "no" : "yes", base::Quoted(note.text));
}

void Devices::OnLost(
    const std::function<void(const std::string& name, const absl::Status&)>& lost) {
  for (device::Device* device : all_) {
    device->OnLost(
        [lost, name = device->name()](const absl::Status& status) { lost(name, status); });
  }
}

void Devices::Add(std::unique_ptr<device::Device> device) {
  spdlog::info("event=device name={} detail={}", device->name(), base::Quoted(device->Describe()));
  all_.push_back(device.get());
  owned_.push_back(std::move(device));
}

}  // namespace moment
