#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cuda/kernel_arguments.h"

// Elements to and from global memory, widened and narrowed on the way: whole groups of four where
// all of a group belongs to a run, single elements at a run's ends.
namespace moment::cuda {

using device::DataType;

template <DataType Type>
struct Storage;
template <>
struct Storage<DataType::kFloat32> {
  using Type = float;
};
template <>
struct Storage<DataType::kBFloat16> {
  using Type = __nv_bfloat16;
};
template <>
struct Storage<DataType::kFloat16> {
  using Type = __half;
};

__device__ __forceinline__ float Widen(float value) { return value; }
__device__ __forceinline__ float Widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float Widen(__half value) { return __half2float(value); }
__device__ __forceinline__ void Narrow(float value, float& to) { to = value; }
__device__ __forceinline__ void Narrow(float value, __nv_bfloat16& to) {
  to = __float2bfloat16_rn(value);
}
__device__ __forceinline__ void Narrow(float value, __half& to) { to = __float2half_rn(value); }

// A 16-bit value that is only copied: its bits, whatever they mean.
struct Bits16 {
  uint16_t bits;
};
__device__ __forceinline__ float Widen(Bits16 value) { return __uint_as_float(value.bits); }
__device__ __forceinline__ void Narrow(float value, Bits16& to) {
  to.bits = static_cast<uint16_t>(__float_as_uint(value));
}

// `value` rounded to the type and widened again.
template <typename T>
__device__ __forceinline__ float Rounded(float value) {
  T narrow;
  Narrow(value, narrow);
  return Widen(narrow);
}
__device__ __forceinline__ float Rounded(DataType type, float value) {
  switch (type) {
    case DataType::kBFloat16:
      return Rounded<__nv_bfloat16>(value);
    case DataType::kFloat16:
      return Rounded<__half>(value);
    default:
      return value;
  }
}

struct Single {
  static constexpr uint32_t kElements = 1;
  float values[1];
};
struct Group {
  static constexpr uint32_t kElements = kGroupElements;
  float values[kGroupElements];
};

// A group of fp32 is 16 bytes, of a 16-bit type 8: one access.
template <typename T, uint32_t Elements>
struct alignas(sizeof(T) * Elements) Packed {
  T values[Elements];
};

// Element `index` of an array whose element 0 lies at `origin`, in global memory.
template <typename T>
__device__ __forceinline__ T* Address(uint64_t origin, uint64_t index) {
  return static_cast<T*>(__cvta_global_to_generic(origin + index * sizeof(T)));
}

template <typename Elements, typename T>
__device__ __forceinline__ Elements LoadPacked(uint64_t origin, uint64_t index) {
  const auto packed = *Address<const Packed<T, Elements::kElements>>(origin + index * sizeof(T), 0);
  Elements elements;
#pragma unroll
  for (uint32_t i = 0; i < Elements::kElements; ++i) {
    elements.values[i] = Widen(packed.values[i]);
  }
  return elements;
}

template <typename Elements, typename T>
__device__ __forceinline__ void StorePacked(const Elements& elements, uint64_t origin,
                                            uint64_t index) {
  Packed<T, Elements::kElements> packed;
#pragma unroll
  for (uint32_t i = 0; i < Elements::kElements; ++i) {
    Narrow(elements.values[i], packed.values[i]);
  }
  *Address<Packed<T, Elements::kElements>>(origin + index * sizeof(T), 0) = packed;
}

// The same for the whole of a block, and so are the branches on it.
template <typename Elements, typename T>
__device__ __forceinline__ bool IsAligned(uint64_t origin) {
  return origin % sizeof(Packed<T, Elements::kElements>) == 0;
}

template <typename Elements, typename T>
__device__ __forceinline__ Elements LoadAs(uint64_t origin, uint64_t index) {
  if (IsAligned<Elements, T>(origin)) {
    return LoadPacked<Elements, T>(origin, index);
  }
  Elements elements;
#pragma unroll
  for (uint32_t i = 0; i < Elements::kElements; ++i) {
    elements.values[i] = Widen(*Address<const T>(origin, index + i));
  }
  return elements;
}

template <typename Elements, typename T>
__device__ __forceinline__ void StoreAs(const Elements& elements, uint64_t origin, uint64_t index) {
  if (IsAligned<Elements, T>(origin)) {
    StorePacked<Elements, T>(elements, origin, index);
    return;
  }
#pragma unroll
  for (uint32_t i = 0; i < Elements::kElements; ++i) {
    Narrow(elements.values[i], *Address<T>(origin, index + i));
  }
}

// An array of the chunk itself: its groups are aligned.
template <typename Elements, typename T>
__device__ __forceinline__ Elements LoadState(const void* array, uint64_t index) {
  return LoadPacked<Elements, T>(reinterpret_cast<uint64_t>(array), index);
}
template <typename Elements, typename T>
__device__ __forceinline__ void StoreState(const Elements& elements, void* array, uint64_t index) {
  StorePacked<Elements, T>(elements, reinterpret_cast<uint64_t>(array), index);
}

// Of a run's type.
template <typename Elements>
__device__ __forceinline__ Elements Load(DataType type, uint64_t origin, uint64_t index) {
  switch (type) {
    case DataType::kBFloat16:
      return LoadAs<Elements, __nv_bfloat16>(origin, index);
    case DataType::kFloat16:
      return LoadAs<Elements, __half>(origin, index);
    default:
      return LoadAs<Elements, float>(origin, index);
  }
}
template <typename Elements>
__device__ __forceinline__ void Store(DataType type, const Elements& elements, uint64_t origin,
                                      uint64_t index) {
  switch (type) {
    case DataType::kBFloat16:
      StoreAs<Elements, __nv_bfloat16>(elements, origin, index);
      return;
    case DataType::kFloat16:
      StoreAs<Elements, __half>(elements, origin, index);
      return;
    default:
      StoreAs<Elements, float>(elements, origin, index);
  }
}

// `work.template Run<Elements>(index)` for all that this thread has to do of a run's tile.
template <typename Work>
__device__ __forceinline__ void ForEachGroup(const KernelRun& run, uint32_t tile,
                                             const Work& work) {
  uint64_t group = run.first / kGroupElements +
                   uint64_t{tile} * (kThreadsPerBlock * kGroupsPerThread) + threadIdx.x;
#pragma unroll 1
  for (uint32_t i = 0; i < kGroupsPerThread; ++i, group += kThreadsPerBlock) {
    const uint64_t first = group * kGroupElements;
    if (first >= run.end) {
      return;
    }
    if (first >= run.first && run.end - first >= kGroupElements) {
      work.template Run<Group>(first);
      continue;
    }
    const uint64_t begin = first > run.first ? first : run.first;
    const uint64_t end = first + kGroupElements < run.end ? first + kGroupElements : run.end;
#pragma unroll 1
    for (uint64_t element = begin; element < end; ++element) {
      work.template Run<Single>(element);
    }
  }
}

}  // namespace moment::cuda
