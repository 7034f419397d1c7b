#pragma once

#include <cstdint>

// The square root of profile torch-cpu. torch takes it from Intel MKL, whose AVX-512 code starts
// from the processor's 14-bit reciprocal square root and corrects it once; about 0.6 % of the
// results lie one unit in the last place below the correctly rounded root. This is that sequence
// without the instruction, so that every machine computes the same bits;
// docs/internals/numerics.md.
namespace moment::device {

// Radicands below this are scaled up by an even power of two, and their roots down again.
inline constexpr float kSmallRadicand = 0x1p-60f;
inline constexpr float kSmallRadicandScale = 0x1p96f;
inline constexpr float kSmallRootScale = 0x1p-48f;

// The 14-bit reciprocal square root, a line on each 32nd of an octave of two: with p the low
// exponent bit and the upper five mantissa bits, and w the ten mantissa bits that follow,
// (intercept[p] - slope[p] * w) >> 9, in steps of 2^-16.
inline constexpr int kReciprocalRootPieces = 64;
extern const int32_t kReciprocalRootIntercepts[kReciprocalRootPieces];
extern const int32_t kReciprocalRootSlopes[kReciprocalRootPieces];

// Positive normal numbers only: VRSQRT14PS, bit for bit.
float ReciprocalRoot14(float x);

float SquareRootMkl(float x);

}  // namespace moment::device
