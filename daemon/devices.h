#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/base/worker_pool.h"
#include "daemon/config/options.h"
#include "daemon/device/device.h"
#include "daemon/gpu_door.h"
#include "daemon/service/gpu_notice.h"

namespace moment {

// Owns what computes: the host first, then the GPUs that the configuration asks for, each with its
// context made.
class Devices {
 public:
  // `workers` outlives them. With gpu = auto a machine without a GPU is fine, and so is a GPU whose
  // settings prevent its use: the notices say why. Named GPUs must be there (NOT_FOUND) and usable
  // (FAILED_PRECONDITION).
  static absl::StatusOr<std::unique_ptr<Devices>> Open(const config::Config& config,
                                                       base::WorkerPool& workers,
                                                       const GpuDoor& door = {});

  const std::vector<device::Device*>& all() const { return all_; }
  // Those that host memory is worth registering with.
  const std::vector<device::Device*>& gpus() const { return gpus_; }
  const std::vector<service::GpuNotice>& notices() const { return notices_; }

  // `lost` runs on a thread of a device's when that device is lost for this process. Set before any
  // work.
  void OnLost(const std::function<void(const std::string& name, const absl::Status&)>& lost);

 private:
  void Add(std::unique_ptr<device::Device> device);
  absl::Status OpenGpus(const config::Config& config, const GpuDoor& door);
  // The settings of those to open.
  absl::StatusOr<std::vector<cuda::GpuSettings>> Choose(const config::Config& config,
                                                        const GpuDoor& door);
  void Notice(const std::string& uuid, const cuda::GpuNote& note);

  std::vector<std::unique_ptr<device::Device>> owned_;
  std::vector<device::Device*> all_;
  std::vector<device::Device*> gpus_;
  std::vector<service::GpuNotice> notices_;
};

}  // namespace moment
