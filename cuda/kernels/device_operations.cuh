#pragma once

// The operations of adam_arithmetic.h as intrinsics, which no compiler contracts or reorders.
namespace moment::cuda {

struct DeviceOperations {
  static __device__ float Add(float a, float b) { return __fadd_rn(a, b); }
  static __device__ float Subtract(float a, float b) { return __fsub_rn(a, b); }
  static __device__ float Multiply(float a, float b) { return __fmul_rn(a, b); }
  static __device__ float MultiplyAdd(float a, float b, float c) { return __fmaf_rn(a, b, c); }
  static __device__ float Divide(float a, float b) { return __fdiv_rn(a, b); }
  static __device__ float SquareRoot(float a) { return __fsqrt_rn(a); }
  static __device__ float Power(float base, float exponent) { return powf(base, exponent); }

  static __device__ double Add(double a, double b) { return __dadd_rn(a, b); }
  static __device__ double Subtract(double a, double b) { return __dsub_rn(a, b); }
  static __device__ double Multiply(double a, double b) { return __dmul_rn(a, b); }
  static __device__ double MultiplyAdd(double a, double b, double c) { return __fma_rn(a, b, c); }
  static __device__ double Divide(double a, double b) { return __ddiv_rn(a, b); }
  static __device__ double SquareRoot(double a) { return __dsqrt_rn(a); }
  static __device__ double Power(double base, double exponent) { return pow(base, exponent); }

  // As nvcc's --use_fast_math has them.
  static __device__ float AddFlush(float a, float b) {
    float sum;
    asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
    return sum;
  }
  static __device__ float MultiplyFlush(float a, float b) {
    float product;
    asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
    return product;
  }
  static __device__ float MultiplyAddFlush(float a, float b, float c) {
    float sum;
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(sum) : "f"(a), "f"(b), "f"(c));
    return sum;
  }
  static __device__ float ReciprocalApproximate(float x) {
    float reciprocal;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
    return reciprocal;
  }
  static __device__ float SquareRootApproximate(float x) {
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(x));
    return root;
  }
};

}  // namespace moment::cuda
