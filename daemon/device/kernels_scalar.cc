#include <cstring>

#include "daemon/device/adam_reference.h"
#include "daemon/device/float_conversion.h"
#include "daemon/device/kernel_table.h"

namespace moment::device {
namespace {

template <typename Bits>
Bits LoadBits(const void* base, uint64_t index) {
  Bits bits;
  std::memcpy(&bits, static_cast<const char*>(base) + index * sizeof(Bits), sizeof(Bits));
  return bits;
}

template <typename Bits>
void StoreBits(Bits bits, void* base, uint64_t index) {
  std::memcpy(static_cast<char*>(base) + index * sizeof(Bits), &bits, sizeof(Bits));
}

template <DataType Type>
float Load(const void* base, uint64_t index) {
  if constexpr (Type == DataType::kFloat32) {
    return LoadBits<float>(base, index);
  } else if constexpr (Type == DataType::kBFloat16) {
    return WidenBFloat16(LoadBits<uint16_t>(base, index));
  } else {
    return WidenFloat16(LoadBits<uint16_t>(base, index));
  }
}

template <DataType Type>
void Store(float value, void* base, uint64_t index) {
  if constexpr (Type == DataType::kFloat32) {
    StoreBits(value, base, index);
  } else if constexpr (Type == DataType::kBFloat16) {
    StoreBits(NarrowBFloat16(value), base, index);
  } else {
    StoreBits(NarrowFloat16(value), base, index);
  }
}

// A loop over the reference.
struct Scalar {
  template <DataType ExpAvg, DataType ExpAvgSq, DataType Gradient, DataType Parameter>
  static void Adam(const AdamConstants& constants, const AdamArrays& arrays) {
    for (uint64_t i = 0; i < arrays.count; ++i) {
      AdamElement element;
      element.main = Load<DataType::kFloat32>(arrays.main_in, i);
      if (arrays.exp_avg_in != nullptr) {
        element.exp_avg = Load<ExpAvg>(arrays.exp_avg_in, i);
      }
      if (arrays.exp_avg_sq_in != nullptr) {
        element.exp_avg_sq = Load<ExpAvgSq>(arrays.exp_avg_sq_in, i);
      }
      element = AdamUpdate(constants, Load<Gradient>(arrays.gradient, i), element);
      Store<DataType::kFloat32>(element.main, arrays.main_out, i);
      Store<ExpAvg>(element.exp_avg, arrays.exp_avg_out, i);
      Store<ExpAvgSq>(element.exp_avg_sq, arrays.exp_avg_sq_out, i);
      Store<Parameter>(element.main, arrays.parameter, i);
    }
  }

  template <DataType From, DataType To>
  static void Convert(const void* from, void* to, uint64_t count) {
    if constexpr (From == To) {
      std::memmove(to, from, count * SizeBytes(To));
    } else {
      for (uint64_t i = 0; i < count; ++i) {
        Store<To>(Load<From>(from, i), to, i);
      }
    }
  }

  template <DataType Parameter>
  static void Refresh(const void* parameter, const void* main_in, void* main_out, uint64_t count) {
    if constexpr (Parameter == DataType::kFloat32) {
      std::memmove(main_out, parameter, count * SizeBytes(Parameter));
    } else {
      for (uint64_t i = 0; i < count; ++i) {
        const auto main = LoadBits<float>(main_in, i);
        const auto bits = LoadBits<uint16_t>(parameter, i);
        const uint16_t cast =
            Parameter == DataType::kBFloat16 ? NarrowBFloat16(main) : NarrowFloat16(main);
        StoreBits(cast == bits ? main : Load<Parameter>(parameter, i), main_out, i);
      }
    }
  }
};

}  // namespace

const KernelTable* ScalarKernels() {
  static constexpr KernelTable kTable = MakeKernelTable<Scalar>();
  return &kTable;
}

}  // namespace moment::device
