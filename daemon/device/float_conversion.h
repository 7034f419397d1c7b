#pragma once

#include <bit>
#include <cstdint>

// 16-bit floating point to and from fp32, one element at a time, rounded to nearest even: the plain
// definition that the vector kernels are held against. NaNs stay NaNs; of their payload the high
// bits survive in fp16 and nothing in bf16.
namespace moment::device {

constexpr float WidenBFloat16(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

constexpr uint16_t NarrowBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<uint16_t>((bits >> 16 & 0x8000u) | 0x7fc0u);
  }
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

constexpr float WidenFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = bits >> 10 & 0x1fu;
  uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | mantissa << 13);
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
  }
  // Subnormal: mantissa x 2^-24, exact in fp32.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

// `bits` shifted right by `shift` (1 to 31), rounded to nearest even.
constexpr uint32_t RoundedShift(uint32_t bits, uint32_t shift) {
  const uint32_t half = 1u << (shift - 1);
  return (bits + (half - 1) + (bits >> shift & 1u)) >> shift;
}

constexpr uint16_t NarrowFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 16 & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) {  // 65520, half way from the largest fp16 to the next: infinity
    return static_cast<uint16_t>(sign | 0x7c00u);
  }
  if (magnitude >= 0x38800000u) {  // 2^-14: normal; a carry moves to the next exponent by itself
    return static_cast<uint16_t>(sign | (RoundedShift(magnitude, 13) - (112u << 10)));
  }
  if (magnitude < 0x33000000u) {  // 2^-25: below half of the smallest subnormal
    return static_cast<uint16_t>(sign);
  }
  const uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  return static_cast<uint16_t>(sign | RoundedShift(mantissa, 126 - (magnitude >> 23)));
}

}  // namespace moment::device
