// Compiled for AVX-512 F, BW, VL and DQ; called only where kernels.cc found them.
#include <immintrin.h>

#include <limits>

#include "daemon/device/square_root.h"
#include "daemon/device/vector_kernels.h"

namespace moment::device {
namespace {

// Constants, so that no inline function of a library is compiled for this processor and linked for
// all.
constexpr float kInfinity = std::numeric_limits<float>::infinity();

const __m256i* HalfWords(const void* base, uint64_t index) {
  return reinterpret_cast<const __m256i*>(static_cast<const char*>(base) + index * 2);
}

__m256i* HalfWords(void* base, uint64_t index) {
  return reinterpret_cast<__m256i*>(static_cast<char*>(base) + index * 2);
}

__m512 Widen16(const void* base, uint64_t index, bool brain) {
  const __m256i words = _mm256_loadu_si256(HalfWords(base, index));
  return brain ? _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16))
               : _mm512_cvtph_ps(words);
}

// By integers: the processor's own conversion takes subnormal numbers for zero.
__m256i NarrowBFloat16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __m512i nan =
      _mm512_or_si512(_mm512_and_si512(high, _mm512_set1_epi32(0x8000)), _mm512_set1_epi32(0x7fc0));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, nan));
}

struct Avx512 {
  using Float = __m512;
  static constexpr uint64_t kWidth = 16;

  static Float Broadcast(float value) { return _mm512_set1_ps(value); }
  static Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float Subtract(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float Multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float Divide(Float a, Float b) { return _mm512_div_ps(a, b); }
  static Float MultiplyAdd(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float Negate(Float a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
  static Float SquareRoot(Float a) { return _mm512_sqrt_ps(a); }

  static Float SquareRootMkl(Float x) {
    const __mmask16 small = _mm512_cmp_ps_mask(x, Broadcast(kSmallRadicand), _CMP_LT_OQ);
    const Float scaled = _mm512_mask_mul_ps(x, small, x, Broadcast(kSmallRadicandScale));
    const Float y = _mm512_rsqrt14_ps(scaled);
    const Float estimate = Multiply(scaled, y);
    const Float rest = _mm512_fnmadd_ps(estimate, estimate, scaled);
    Float root = MultiplyAdd(Multiply(Broadcast(0.5f), y), rest, estimate);
    root = _mm512_mask_mul_ps(root, small, root, Broadcast(kSmallRootScale));
    const __mmask16 itself =
        static_cast<__mmask16>(_mm512_cmp_ps_mask(x, Broadcast(0.0f), _CMP_EQ_OQ) |
                               _mm512_cmp_ps_mask(x, Broadcast(kInfinity), _CMP_EQ_OQ));
    return _mm512_mask_mov_ps(root, itself, x);
  }

  template <DataType Type>
  static Float Load(const void* base, uint64_t index) {
    if constexpr (Type == DataType::kFloat32) {
      return _mm512_loadu_ps(static_cast<const float*>(base) + index);
    } else {
      return Widen16(base, index, Type == DataType::kBFloat16);
    }
  }

  template <DataType Type>
  static __m256i Narrow(Float value) {
    if constexpr (Type == DataType::kBFloat16) {
      return NarrowBFloat16(value);
    } else {
      return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
  }

  template <DataType Type>
  static void Store(Float value, void* base, uint64_t index) {
    if constexpr (Type == DataType::kFloat32) {
      _mm512_storeu_ps(static_cast<float*>(base) + index, value);
    } else {
      _mm256_storeu_si256(HalfWords(base, index), Narrow<Type>(value));
    }
  }

  // Parameters of 16 bits, widened; but a main whose cast has the parameter's bits stays.
  template <DataType Type>
  static Float Refreshed(Float main, const void* parameter, uint64_t index) {
    const __m256i words = _mm256_loadu_si256(HalfWords(parameter, index));
    const __mmask16 same = _mm256_cmpeq_epi16_mask(Narrow<Type>(main), words);
    return _mm512_mask_mov_ps(Load<Type>(parameter, index), same, main);
  }
};

}  // namespace

const KernelTable* Avx512Kernels() {
  static constexpr KernelTable kTable = MakeKernelTable<VectorKernels<Avx512>>();
  return &kTable;
}

bool Avx512ReciprocalRootMatches() {
  // Both octaves; the instruction ignores the low eight bits, but for powers of four.
  for (uint32_t low = 0; low <= 0xffu; low += 0xffu) {
    for (uint32_t i = 0; i < 0x10000; ++i) {
      const float input = __builtin_bit_cast(float, 0x3f800000u + (i << 8) + low);
      const __m512 output = _mm512_rsqrt14_ps(_mm512_set1_ps(input));
      if (_mm512_cvtss_f32(output) != ReciprocalRoot14(input)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace moment::device
