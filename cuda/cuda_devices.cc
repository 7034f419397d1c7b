#include "cuda/cuda_devices.h"

#include "cuda/cuda_device.h"
#include "cuda/gpu_list.h"
#include "daemon/base/errors.h"

namespace moment::cuda {

absl::StatusOr<std::unique_ptr<device::Device>> OpenGpu(const std::string& uuid,
                                                        const CudaDeviceOptions& options) {
  MOMENT_ASSIGN_OR_RETURN(const Driver* driver, Driver::Load());
  MOMENT_ASSIGN_OR_RETURN(const NumberedGpu gpu, FindGpu(*driver, uuid));
  return CudaDevice::Create(*driver, gpu.device, gpu.gpu, options);
}

}  // namespace moment::cuda
