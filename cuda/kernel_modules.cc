#include "cuda/kernel_modules.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

// Of embedded_kernels.S.
extern "C" {
extern const char moment_kernels_adam_torch_cuda[];
extern const char moment_kernels_adam_torch_cuda_foreach[];
extern const char moment_kernels_adam_torch_cuda_210[];
extern const char moment_kernels_adam_te[];
extern const char moment_kernels_convert[];
}

namespace moment::cuda {
namespace {

using device::Profile;

struct ProfileImage {
  Profile profile;
  const char* image;
  const char* name;
};

constexpr ProfileImage kImages[] = {
    {Profile::kTorchCuda, moment_kernels_adam_torch_cuda, "torch-cuda"},
    {Profile::kTorchCudaForeach, moment_kernels_adam_torch_cuda_foreach, "torch-cuda-foreach"},
    {Profile::kTorchCuda210, moment_kernels_adam_torch_cuda_210, "torch-cuda-210"},
    {Profile::kTe, moment_kernels_adam_te, "te"},
};

// By the number of a DataType.
constexpr const char* kTypeNames[] = {"Float32", "BFloat16", "Float16"};

int IndexOf(Profile profile) {
  int index = 0;
  for (const ProfileImage& image : kImages) {
    if (image.profile == profile) {
      return index;
    }
    ++index;
  }
  return -1;
}

absl::StatusOr<CUfunction> Find(const Context& context, const Module& module,
                                const std::string& name) {
  CUfunction function = nullptr;
  MOMENT_RETURN_IF_ERROR(context.driver().Check(
      context.driver().cuModuleGetFunction(&function, module.get(), name.c_str()), "find", name));
  return function;
}

}  // namespace

bool HasKernels(Profile profile) { return IndexOf(profile) >= 0; }

bool CompletesScalars(Profile profile) {
  return profile == Profile::kTorchCuda || profile == Profile::kTorchCuda210;
}

absl::StatusOr<KernelModules> KernelModules::Load(const Context& context) {
  const ContextGuard guard(context);
  KernelModules modules;
  modules.driver_ = &context.driver();
  for (int i = 0; i < kProfiles; ++i) {
    MOMENT_RETURN_IF_ERROR(modules.LoadAdam(context, i));
  }
  MOMENT_RETURN_IF_ERROR(modules.LoadConversions(context));
  return modules;
}

absl::Status KernelModules::LoadAdam(const Context& context, int index) {
  const ProfileImage& image = kImages[index];
  Module& module = adam_modules_[index];
  MOMENT_ASSIGN_OR_RETURN(module, LoadModule(context, image.image, image.name));
  MOMENT_ASSIGN_OR_RETURN(adam_[index].complete_scalars,
                          Find(context, module, "moment_complete_scalars"));
  for (int m = 0; m < kExpAvgTypes; ++m) {
    for (int v = 0; v < kExpAvgSqTypes; ++v) {
      MOMENT_ASSIGN_OR_RETURN(
          adam_[index].adam[m][v],
          Find(context, module, absl::StrCat("moment_adam_", kTypeNames[m], "_", kTypeNames[v])));
    }
  }
  return absl::OkStatus();
}

absl::Status KernelModules::LoadConversions(const Context& context) {
  MOMENT_ASSIGN_OR_RETURN(conversions_,
                          LoadModule(context, moment_kernels_convert, "the conversions"));
  MOMENT_ASSIGN_OR_RETURN(read_segments_, Find(context, conversions_, "moment_read_segments"));
  MOMENT_ASSIGN_OR_RETURN(write_segments_, Find(context, conversions_, "moment_write_segments"));
  return absl::OkStatus();
}

absl::Status KernelModules::CompleteScalars(CUstream stream, Profile profile, CUdeviceptr scalars,
                                            uint32_t count) const {
  void* arguments[] = {&scalars, &count};
  const uint32_t blocks = (count + kThreadsPerBlock - 1) / kThreadsPerBlock;
  return Launch(stream, adam_[IndexOf(profile)].complete_scalars, blocks, arguments);
}

absl::Status KernelModules::Run(CUstream stream, const device::ChunkWork& work,
                                const KernelChunk& chunk, uint32_t tiles) const {
  CUfunction function = device::OnlyReads(work.op) ? read_segments_ : write_segments_;
  if (work.op == device::ChunkOp::kAdam) {
    function = adam_[IndexOf(work.profile)]
                   .adam[static_cast<size_t>(work.segment_types[device::kExpAvg])]
                        [static_cast<size_t>(work.segment_types[device::kExpAvgSq])];
  }
  KernelChunk argument = chunk;
  void* arguments[] = {&argument};
  return Launch(stream, function, tiles, arguments);
}

absl::Status KernelModules::Launch(CUstream stream, CUfunction function, uint32_t blocks,
                                   void** arguments) const {
  return driver_->Check(driver_->cuLaunchKernel(function, blocks, 1, 1, kThreadsPerBlock, 1, 1, 0,
                                                stream, arguments, nullptr),
                        "launch", "a kernel");
}

}  // namespace moment::cuda
