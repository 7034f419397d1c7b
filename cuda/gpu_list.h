#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/cuda_devices.h"
#include "cuda/driver.h"

namespace moment::cuda {

struct NumberedGpu {
  CUdevice device = 0;
  Gpu gpu;
};

// In the driver's order. NOT_FOUND if there is none.
absl::StatusOr<std::vector<NumberedGpu>> ListGpus(const Driver& driver);

// NOT_FOUND if the process does not see it.
absl::StatusOr<NumberedGpu> FindGpu(const Driver& driver, const std::string& uuid);

}  // namespace moment::cuda
