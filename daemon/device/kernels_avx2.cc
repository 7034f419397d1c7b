// Compiled for AVX2, FMA and F16C; called only where kernels.cc found them.
#include <immintrin.h>

#include <limits>

#include "daemon/device/square_root.h"
#include "daemon/device/vector_kernels.h"

namespace moment::device {
namespace {

// Constants, so that no inline function of a library is compiled for this processor and linked for
// all.
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const __m128i* HalfWords(const void* base, uint64_t index) {
  return reinterpret_cast<const __m128i*>(static_cast<const char*>(base) + index * 2);
}

__m128i* HalfWords(void* base, uint64_t index) {
  return reinterpret_cast<__m128i*>(static_cast<char*>(base) + index * 2);
}

__m256 Widen16(const void* base, uint64_t index, bool brain) {
  const __m128i words = _mm_loadu_si128(HalfWords(base, index));
  return brain ? _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16))
               : _mm256_cvtph_ps(words);
}

__m128i NarrowBFloat16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i nan =
      _mm256_or_si256(_mm256_and_si256(high, _mm256_set1_epi32(0x8000)), _mm256_set1_epi32(0x7fc0));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i words = _mm256_blendv_epi8(rounded, nan, is_nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

// VRSQRT14PS of positive normal numbers; lanes with anything else hold nonsense.
__m256 ReciprocalRoot14(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i exponent = _mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127));
  const __m256i halved_exponent = _mm256_slli_epi32(_mm256_srai_epi32(exponent, 1), 23);
  const __m256i piece = _mm256_and_si256(_mm256_srli_epi32(bits, 18), _mm256_set1_epi32(63));
  const __m256i within = _mm256_and_si256(_mm256_srli_epi32(bits, 8), _mm256_set1_epi32(0x3ff));
  const __m256i intercept = _mm256_i32gather_epi32(kReciprocalRootIntercepts, piece, 4);
  const __m256i slope = _mm256_i32gather_epi32(kReciprocalRootSlopes, piece, 4);
  const __m256i line = _mm256_sub_epi32(intercept, _mm256_mullo_epi32(slope, within));
  const __m256i steps = _mm256_slli_epi32(_mm256_srai_epi32(line, 9), 7);
  const __m256i root = _mm256_add_epi32(_mm256_set1_epi32(0x3f000000), steps);
  const __m256i power_of_four = _mm256_cmpeq_epi32(
      _mm256_and_si256(bits, _mm256_set1_epi32(0xffffff)), _mm256_set1_epi32(0x800000));
  const __m256i unscaled = _mm256_blendv_epi8(root, _mm256_set1_epi32(0x3f800000), power_of_four);
  return _mm256_castsi256_ps(_mm256_sub_epi32(unscaled, halved_exponent));
}

struct Avx2 {
  using Float = __m256;
  static constexpr uint64_t kWidth = 8;

  static Float Broadcast(float value) { return _mm256_set1_ps(value); }
  static Float Add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float Subtract(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float Multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float Divide(Float a, Float b) { return _mm256_div_ps(a, b); }
  static Float MultiplyAdd(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float Negate(Float a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  static Float SquareRoot(Float a) { return _mm256_sqrt_ps(a); }

  static Float SquareRootMkl(Float x) {
    const Float small = _mm256_cmp_ps(x, Broadcast(kSmallRadicand), _CMP_LT_OQ);
    const Float scaled = _mm256_blendv_ps(x, Multiply(x, Broadcast(kSmallRadicandScale)), small);
    const Float y = ReciprocalRoot14(scaled);
    const Float estimate = Multiply(scaled, y);
    const Float rest = _mm256_fnmadd_ps(estimate, estimate, scaled);
    Float root = MultiplyAdd(Multiply(Broadcast(0.5f), y), rest, estimate);
    root = _mm256_blendv_ps(root, Multiply(root, Broadcast(kSmallRootScale)), small);
    const Float positive = _mm256_cmp_ps(x, Broadcast(0.0f), _CMP_GT_OQ);
    root = _mm256_blendv_ps(Broadcast(kNan), root, positive);
    const Float itself = _mm256_or_ps(_mm256_cmp_ps(x, Broadcast(0.0f), _CMP_EQ_OQ),
                                      _mm256_cmp_ps(x, Broadcast(kInfinity), _CMP_EQ_OQ));
    return _mm256_blendv_ps(root, x, itself);
  }

  template <DataType Type>
  static Float Load(const void* base, uint64_t index) {
    if constexpr (Type == DataType::kFloat32) {
      return _mm256_loadu_ps(static_cast<const float*>(base) + index);
    } else {
      return Widen16(base, index, Type == DataType::kBFloat16);
    }
  }

  template <DataType Type>
  static __m128i Narrow(Float value) {
    if constexpr (Type == DataType::kBFloat16) {
      return NarrowBFloat16(value);
    } else {
      return _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    }
  }

  template <DataType Type>
  static void Store(Float value, void* base, uint64_t index) {
    if constexpr (Type == DataType::kFloat32) {
      _mm256_storeu_ps(static_cast<float*>(base) + index, value);
    } else {
      _mm_storeu_si128(HalfWords(base, index), Narrow<Type>(value));
    }
  }

  // Parameters of 16 bits, widened; but a main whose cast has the parameter's bits stays.
  template <DataType Type>
  static Float Refreshed(Float main, const void* parameter, uint64_t index) {
    const __m128i words = _mm_loadu_si128(HalfWords(parameter, index));
    const __m128i same = _mm_cmpeq_epi16(Narrow<Type>(main), words);
    const Float mask = _mm256_castsi256_ps(_mm256_cvtepi16_epi32(same));
    return _mm256_blendv_ps(Load<Type>(parameter, index), main, mask);
  }
};

}  // namespace

const KernelTable* Avx2Kernels() {
  static constexpr KernelTable kTable = MakeKernelTable<VectorKernels<Avx2>>();
  return &kTable;
}

}  // namespace moment::device
