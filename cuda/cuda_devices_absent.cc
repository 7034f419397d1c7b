// In the place of the device where the build found no CUDA compiler.
#include "cuda/cuda_devices.h"
#include "cuda/sharing_trial.h"

namespace moment::cuda {
namespace {

absl::Status Absent() {
  return absl::UnimplementedError(
      "this build has no CUDA device: nvcc was not found when it was configured");
}

}  // namespace

absl::StatusOr<std::vector<Gpu>> FindGpus() { return Absent(); }

absl::StatusOr<GpuSurvey> SurveyGpus() { return Absent(); }

absl::StatusOr<std::unique_ptr<device::Device>> OpenGpu(const std::string&,
                                                        const CudaDeviceOptions&) {
  return Absent();
}

absl::StatusOr<std::unique_ptr<SharedPiece>> MakeSharedPiece(const std::string&, Sharing) {
  return Absent();
}

absl::Status AnswerSharedPiece(const std::string&, const std::string&, base::UniqueFd) {
  return Absent();
}

}  // namespace moment::cuda
