#include "daemon/device/kernels.h"

#include <cstddef>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace moment::device {
namespace {

const KernelTable* TableOf(InstructionSet set) {
  switch (set) {
    case InstructionSet::kScalar:
      return ScalarKernels();
    case InstructionSet::kAvx2:
      return Avx2Kernels();
    case InstructionSet::kAvx512:
      return Avx512Kernels();
  }
  return nullptr;
}

#if defined(__x86_64__)
// clang 14's __builtin_cpu_supports does not know this one.
bool HasF16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

bool ProcessorHas(InstructionSet set) {
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && HasF16c();
  switch (set) {
    case InstructionSet::kScalar:
      return true;
    case InstructionSet::kAvx2:
      return avx2;
    case InstructionSet::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             Avx512ReciprocalRootMatches();
  }
#endif
  return set == InstructionSet::kScalar;
}

size_t Index(DataType type) { return static_cast<size_t>(type); }

}  // namespace

absl::string_view Name(InstructionSet set) {
  switch (set) {
    case InstructionSet::kScalar:
      return "scalar";
    case InstructionSet::kAvx2:
      return "AVX2";
    case InstructionSet::kAvx512:
      return "AVX-512";
  }
  return "unknown";
}

bool Available(InstructionSet set) {
  static const bool available[kInstructionSetCount] = {
      ProcessorHas(InstructionSet::kScalar),
      Avx2Kernels() != nullptr && ProcessorHas(InstructionSet::kAvx2),
      Avx512Kernels() != nullptr && ProcessorHas(InstructionSet::kAvx512),
  };
  return available[static_cast<size_t>(set)];
}

InstructionSet BestInstructionSet() {
  if (Available(InstructionSet::kAvx512)) {
    return InstructionSet::kAvx512;
  }
  return Available(InstructionSet::kAvx2) ? InstructionSet::kAvx2 : InstructionSet::kScalar;
}

AdamKernel FindAdamKernel(InstructionSet set, const AdamTypes& types) {
  if (types.exp_avg_sq == DataType::kFloat16) {
    return nullptr;
  }
  return TableOf(set)->adam[Index(types.exp_avg)][Index(types.exp_avg_sq)][Index(types.gradient)]
                           [Index(types.parameter)];
}

ConvertKernel FindConvertKernel(InstructionSet set, DataType from, DataType to) {
  return TableOf(set)->convert[Index(from)][Index(to)];
}

RefreshKernel FindRefreshKernel(InstructionSet set, DataType parameter) {
  return TableOf(set)->refresh[Index(parameter)];
}

}  // namespace moment::device
