#include "cuda/power_float.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moment::cuda {
namespace {

// An unevaluated sum.
struct Pair {
  float high;
  float low;
};

// The binary logarithm of a positive number: of the mantissa by the series of 2 atanh((a-1)/(a+1)),
// with the quotient and the sum kept as pairs.
Pair BinaryLogarithm(float x, float (*reciprocal_of)(float)) {
  const bool subnormal = x < 0x1p-126f;
  const float normal = subnormal ? x * 0x1p24f : x;
  const uint32_t bits = std::bit_cast<uint32_t>(normal);
  const uint32_t exponent = (bits - 0x3f3504f3u) & 0xff800000u;  // of sqrt(1/2) to sqrt(2)
  const float mantissa = std::bit_cast<float>(bits - exponent);
  const float integer = std::fma(static_cast<float>(static_cast<int32_t>(exponent)), 0x1p-23f,
                                 subnormal ? -24.0f : 0.0f);
  const float minus_one = mantissa - 1.0f;
  const float reciprocal = reciprocal_of(mantissa + 1.0f);
  const float q = (minus_one + minus_one) * reciprocal;
  const float half_rest = minus_one - q;
  const float q_low = std::fma(minus_one, -q, half_rest + half_rest) * reciprocal;
  const float square = q * q;
  float series = std::fma(square, std::bit_cast<float>(0x3a2c32e4u), 0.0032181653659790754f);
  series = std::fma(square, series, 0.018033718690276146f);
  series = std::fma(square, series, 0.12022458761930466f) * square;

  constexpr float kLog2E = 1.4426950216293335f;
  constexpr float kLog2ELow = 1.9251366722983221e-08f;
  const float high = std::fma(q, kLog2E, integer);
  float low = std::fma(q, kLog2E, integer - high);
  low = std::fma(q_low, kLog2E, low);
  low = std::fma(q, kLog2ELow, low);
  low = std::fma(q_low, series * 3.0f, low);
  low = std::fma(q, series, low);
  const float sum = high + low;
  return {sum, low - (sum - high)};
}

// 2^high * 2^low for `high` of magnitude 152 at most: the scaling goes in two steps, so that
// subnormal results are rounded once.
float BinaryPower(float high, float low) {
  const float integer = std::nearbyint(high);
  const float fraction = low + (high - integer);
  float series = std::fma(fraction, std::bit_cast<float>(0x391fcb8eu), 0.0013391353422775865f);
  series = std::fma(fraction, series, 0.0096188392490148544f);
  series = std::fma(fraction, series, 0.055503588169813156f);
  series = std::fma(fraction, series, 0.24022644758224487f);
  series = std::fma(fraction, series, 0.69314718246459961f);
  series = std::fma(fraction, series, 1.0f);
  const uint32_t bias = integer > 0 ? 0u : 0x83000000u;
  const float first = std::bit_cast<float>(bias + 0x7f000000u);
  const uint32_t shifted = static_cast<uint32_t>(static_cast<int32_t>(integer)) << 23;
  return series * first * std::bit_cast<float>(shifted - bias);
}

}  // namespace

float PowerFloat(float base, float exponent, float (*reciprocal)(float x)) {
  if (base == 1.0f || base == 0.0f) {
    return base;
  }
  const Pair logarithm = BinaryLogarithm(base, reciprocal);
  const float high = exponent * logarithm.high;
  const float low = std::fma(exponent, logarithm.low, std::fma(exponent, logarithm.high, -high));
  if (std::fabs(high) > 152.0f) {
    return high < 0 ? 0.0f : std::numeric_limits<float>::infinity();
  }
  return BinaryPower(high, low);
}

}  // namespace moment::cuda
