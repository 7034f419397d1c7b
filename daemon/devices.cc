#include "daemon/devices.h"

#include <spdlog/spdlog.h>

#include <string>
#include <utility>

#include "cuda/cuda_devices.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"
#include "daemon/device/host_device.h"

namespace moment {
namespace {

// The UUIDs to open.
absl::StatusOr<std::vector<std::string>> WantedGpus(const config::Config& config) {
  std::vector<std::string> wanted;
  if (config.gpus == std::vector<std::string>{"none"}) {
    spdlog::info("event=gpu detail={}", base::Quoted("none: gpu = none"));
    return wanted;
  }
  const absl::StatusOr<std::vector<cuda::Gpu>> found = cuda::FindGpus();
  if (config.gpus != std::vector<std::string>{"auto"}) {
    MOMENT_RETURN_IF_ERROR(base::WithContext(found.status(), "gpu"));
    return config.gpus;
  }
  if (!found.ok()) {
    spdlog::info("event=gpu detail={}", base::Quoted(found.status().message()));
    return wanted;
  }
  for (const cuda::Gpu& gpu : *found) {
    wanted.push_back(gpu.uuid);
  }
  return wanted;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Devices>> Devices::Open(const config::Config& config,
                                                       base::WorkerPool& workers) {
  auto devices = std::make_unique<Devices>();
  devices->Add(std::make_unique<device::HostDevice>(workers));
  MOMENT_RETURN_IF_ERROR(devices->OpenGpus(config));
  return devices;
}

absl::Status Devices::OpenGpus(const config::Config& config) {
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::string> wanted, WantedGpus(config));
  cuda::CudaDeviceOptions options;
  options.staging_bytes = config.gpu_staging_bytes;
  options.slots = static_cast<int>(config.gpu_slots);
  for (const std::string& uuid : wanted) {
    MOMENT_ASSIGN_OR_RETURN(std::unique_ptr<device::Device> gpu, cuda::OpenGpu(uuid, options));
    gpus_.push_back(gpu.get());
    Add(std::move(gpu));
  }
  return absl::OkStatus();
}

void Devices::Add(std::unique_ptr<device::Device> device) {
  spdlog::info("event=device name={} detail={}", device->name(), base::Quoted(device->Describe()));
  all_.push_back(device.get());
  owned_.push_back(std::move(device));
}

}  // namespace moment
