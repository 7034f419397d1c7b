#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/base/worker_pool.h"
#include "daemon/config/options.h"
#include "daemon/device/device.h"

namespace moment {

// Owns what computes: the host first, then the GPUs that the configuration asks for, each with its
// context made.
class Devices {
 public:
  // `workers` outlives them. With gpu = auto a machine without a GPU is fine, and the log says why
  // there is none; a GPU that is named and missing is an error.
  static absl::StatusOr<std::unique_ptr<Devices>> Open(const config::Config& config,
                                                       base::WorkerPool& workers);

  const std::vector<device::Device*>& all() const { return all_; }
  // Those that host memory is worth registering with.
  const std::vector<device::Device*>& gpus() const { return gpus_; }

 private:
  void Add(std::unique_ptr<device::Device> device);
  absl::Status OpenGpus(const config::Config& config);

  std::vector<std::unique_ptr<device::Device>> owned_;
  std::vector<device::Device*> all_;
  std::vector<device::Device*> gpus_;
};

}  // namespace moment
