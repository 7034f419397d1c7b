#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"
#include "daemon/device/adam_constants.h"
#include "daemon/device/types.h"

// Adam and conversions over arrays, one implementation an instruction set, all with the bits of
// adam_reference.h. Any alignment, any count; outputs may be the inputs themselves.
namespace moment::device {

enum class InstructionSet : uint8_t { kScalar, kAvx2, kAvx512 };
inline constexpr int kInstructionSetCount = 3;

absl::string_view Name(InstructionSet set);
// Built in, and this processor has it.
bool Available(InstructionSet set);
// The widest available.
InstructionSet BestInstructionSet();

struct AdamTypes {
  DataType exp_avg = DataType::kFloat32;
  DataType exp_avg_sq = DataType::kFloat32;  // not kFloat16
  DataType gradient = DataType::kFloat32;
  DataType parameter = DataType::kFloat32;
};

struct AdamArrays {
  const void* main_in = nullptr;        // fp32
  const void* exp_avg_in = nullptr;     // null: zeros
  const void* exp_avg_sq_in = nullptr;  // null: zeros
  void* main_out = nullptr;
  void* exp_avg_out = nullptr;
  void* exp_avg_sq_out = nullptr;
  const void* gradient = nullptr;
  void* parameter = nullptr;  // the new main in its own type
  uint64_t count = 0;
};

using AdamKernel = void (*)(const AdamConstants& constants, const AdamArrays& arrays);
// Widens exactly and narrows to nearest even, by way of fp32; equal types are copied bit for bit.
using ConvertKernel = void (*)(const void* from, void* to, uint64_t count);
// Parameters -> mains (fp32), but a main whose cast has the parameter's bits stays: it is what the
// parameter was rounded from.
using RefreshKernel = void (*)(const void* parameter, const void* main_in, void* main_out,
                               uint64_t count);

struct KernelTable {
  AdamKernel adam[3][2][3][3] = {};  // by exp_avg, exp_avg_sq, gradient, parameter
  ConvertKernel convert[3][3] = {};  // by source, destination
  RefreshKernel refresh[3] = {};     // by parameter
};

// `set` must be available; null where there is no kernel (exp_avg_sq as fp16).
AdamKernel FindAdamKernel(InstructionSet set, const AdamTypes& types);
ConvertKernel FindConvertKernel(InstructionSet set, DataType from, DataType to);
RefreshKernel FindRefreshKernel(InstructionSet set, DataType parameter);

// Of the files that implement them; null where the build has no such code.
const KernelTable* ScalarKernels();
const KernelTable* Avx2Kernels();
const KernelTable* Avx512Kernels();
// Whether VRSQRT14PS of this processor is the one that square_root.h writes out; needs AVX-512.
bool Avx512ReciprocalRootMatches();

}  // namespace moment::device
