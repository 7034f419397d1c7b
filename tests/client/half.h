#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "moment/v1/types.pb.h"

namespace moment::testing {

// fp32 and bf16 to fp32 and back, round to nearest even; the fake knows no fp16.
inline float Widen(v1::DataType type, const std::byte* from) {
  uint32_t bits = 0;
  if (type == v1::DATA_TYPE_FLOAT32) {
    std::memcpy(&bits, from, sizeof bits);
  } else {
    uint16_t half = 0;
    std::memcpy(&half, from, sizeof half);
    bits = static_cast<uint32_t>(half) << 16;
  }
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline void Narrow(v1::DataType type, float value, std::byte* to) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (type == v1::DATA_TYPE_FLOAT32) {
    std::memcpy(to, &bits, sizeof bits);
  } else {
    const auto half = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    std::memcpy(to, &half, sizeof half);
  }
}

}  // namespace moment::testing
