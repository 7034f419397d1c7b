#include "daemon/device/square_root.h"

#include <bit>
#include <cmath>
#include <limits>

namespace moment::device {

const int32_t kReciprocalRootIntercepts[kReciprocalRootPieces] = {
    13896320, 13171840, 12480000, 11817472, 11183616, 10574720, 9990272,  9428096,
    8887936,  8367488,  7864960,  7380608,  6912640,  6460672,  6023296,  5600640,
    5190528,  4792704,  4407168,  4033664,  3670400,  3317504,  2974208,  2640896,
    2316544,  2000512,  1692544,  1392384,  1100416,  814720,   536576,   264960,
    33551488, 32526464, 31548032, 30611712, 29714176, 28853120, 28026496, 27232384,
    26467584, 25731200, 25021312, 24336896, 23675136, 23035136, 22417280, 21818752,
    21238656, 20676992, 20131712, 19602432, 19089024, 18590080, 18105344, 17633664,
    17174400, 16727424, 16292608, 15867648, 15454080, 15051520, 14657408, 14273792};

const int32_t kReciprocalRootSlopes[kReciprocalRootPieces] = {
    707,  675, 647, 619, 595, 571, 549, 527, 509, 491, 473, 457, 441, 427, 413, 401,
    389,  377, 365, 355, 345, 335, 325, 317, 309, 301, 293, 285, 279, 271, 265, 259,
    1001, 955, 915, 877, 841, 807, 775, 747, 719, 693, 669, 647, 625, 603, 585, 567,
    549,  533, 517, 501, 487, 473, 461, 449, 437, 425, 415, 403, 393, 385, 375, 367};

float ReciprocalRoot14(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int32_t exponent = static_cast<int32_t>(bits >> 23) - 127;
  const uint32_t halved_exponent = static_cast<uint32_t>(exponent >> 1) << 23;
  if ((bits & 0xffffffu) == 0x800000u) {  // 4^k
    return std::bit_cast<float>(0x3f800000u - halved_exponent);
  }
  const uint32_t piece = bits >> 18 & 63u;
  const int32_t within = static_cast<int32_t>(bits >> 8 & 0x3ffu);
  const int32_t line = kReciprocalRootIntercepts[piece] - kReciprocalRootSlopes[piece] * within;
  const uint32_t steps = static_cast<uint32_t>(line >> 9);
  return std::bit_cast<float>(0x3f000000u + (steps << 7) - halved_exponent);
}

float SquareRootMkl(float x) {
  if (x == 0.0f || x == std::numeric_limits<float>::infinity()) {
    return x;
  }
  if (!(x > 0.0f)) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const bool small = x < kSmallRadicand;
  const float scaled = small ? x * kSmallRadicandScale : x;
  const float y = ReciprocalRoot14(scaled);
  const float estimate = scaled * y;
  const float rest = std::fma(-estimate, estimate, scaled);
  const float root = std::fma(0.5f * y, rest, estimate);
  return small ? root * kSmallRootScale : root;
}

}  // namespace moment::device
