#include "cuda/scalar_table.h"

#include <cstring>

namespace moment::cuda {

using device::Profile;

uint64_t ScalarBytes(Profile profile) {
  switch (profile) {
    case Profile::kTorchCudaForeach:
      return sizeof(TorchCudaForeachScalars);
    case Profile::kTorchCuda210:
      return sizeof(TorchCuda210Scalars);
    case Profile::kTe:
      return sizeof(TeScalars);
    default:
      return sizeof(TorchCudaScalars);
  }
}

void WriteScalars(Profile profile, const device::Hyperparameters& h, uint64_t t, std::byte* to) {
  const auto write = [to](const auto& scalars) { std::memcpy(to, &scalars, sizeof(scalars)); };
  switch (profile) {
    case Profile::kTorchCudaForeach:
      write(MakeTorchCudaForeachScalars(h, t));
      return;
    case Profile::kTorchCuda210:
      write(MakeTorchCuda210Scalars(h, t));
      return;
    case Profile::kTe:
      write(MakeTeScalars(h, t));
      return;
    default:
      write(MakeTorchCudaScalars(h, t));
  }
}

}  // namespace moment::cuda
