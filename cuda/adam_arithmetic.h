#pragma once

#include <cstdint>

#include "cuda/adam_scalars.h"
#include "daemon/device/adam_reference.h"
#include "daemon/device/types.h"

#ifdef __CUDACC__
#define MOMENT_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define MOMENT_HOST_DEVICE inline
#endif

// The CUDA profiles, every rounded operation written out, once for both sides: Ops are the GPU's
// intrinsics in the kernels (kernels/device_operations.cuh), which no compiler contracts, and the
// same operations on the processor in the reference (adam_reference.cc).
namespace moment::cuda {

template <typename Ops>
MOMENT_HOST_DEVICE float Gradient(const Ops& ops, const GradientScalars& scalars, float gradient) {
  float g = gradient;
  if (scalars.scales) {
    g = ops.Multiply(g, scalars.scale);
  }
  return scalars.negates ? -g : g;
}

// The end that the fused kernels of torch share: p - (s * m) / (sqrt(v) / c2 + eps).
template <typename Ops>
MOMENT_HOST_DEVICE float FusedUpdate(const Ops& ops, float p, float m, float denominator,
                                     float step_size) {
  return ops.Subtract(p, ops.Divide(ops.Multiply(step_size, m), denominator));
}

struct TorchCuda {
  static constexpr device::Profile kProfile = device::Profile::kTorchCuda;
  using Scalars = TorchCudaScalars;

  template <typename Ops>
  MOMENT_HOST_DEVICE static void Complete(const Ops& ops, Scalars& s) {
    float bias_correction1 = 1;
    if (s.corrects_bias) {
      bias_correction1 = ops.Subtract(1.0f, ops.Power(s.beta1, s.t));
      s.root_of_bias_correction2 = ops.SquareRoot(ops.Subtract(1.0f, ops.Power(s.beta2, s.t)));
    }
    s.step_size = ops.Divide(s.lr, bias_correction1);
  }

  template <typename Ops>
  MOMENT_HOST_DEVICE static device::AdamElement Update(const Ops& ops, const Scalars& s,
                                                       float gradient,
                                                       device::AdamElement element) {
    float g = Gradient(ops, s.gradient, gradient);
    float p = element.main;
    if (s.decays_gradient) {
      g = ops.MultiplyAdd(p, s.weight_decay, g);
    }
    if (s.decays_parameter) {
      p = ops.MultiplyAdd(s.negative_decay, p, p);
    }
    const float m = ops.MultiplyAdd(s.beta1, element.exp_avg, ops.MultiplyAdd(-s.beta1, g, g));
    const float square = ops.Multiply(g, g);
    const float v =
        ops.MultiplyAdd(s.beta2, element.exp_avg_sq, ops.MultiplyAdd(-s.beta2, square, square));
    const float denominator =
        ops.Add(ops.Divide(ops.SquareRoot(v), s.root_of_bias_correction2), s.eps);
    return {FusedUpdate(ops, p, m, denominator, s.step_size), m, v};
  }
};

struct TorchCudaForeach {
  static constexpr device::Profile kProfile = device::Profile::kTorchCudaForeach;
  using Scalars = TorchCudaForeachScalars;

  template <typename Ops>
  MOMENT_HOST_DEVICE static void Complete(const Ops&, Scalars&) {}  // the host's Python did

  template <typename Ops>
  MOMENT_HOST_DEVICE static device::AdamElement Update(const Ops& ops, const Scalars& s,
                                                       float gradient,
                                                       device::AdamElement element) {
    float g = Gradient(
        ops, GradientScalars{s.gradient_scale, s.scales_gradient, s.negates_gradient}, gradient);
    float p = element.main;
    if (s.decays_parameter) {  // _foreach_mul_(params, 1 - lr * weight_decay)
      p = ops.Multiply(p, s.parameter_factor);
    }
    if (s.decays_gradient) {  // _foreach_add(grads, params, alpha=weight_decay)
      g = ops.MultiplyAdd(s.weight_decay, p, g);
    }
    // _foreach_lerp_(exp_avgs, grads, 1 - beta1)
    const float distance = ops.Subtract(g, element.exp_avg);
    const float m = s.lerps_from_start
                        ? ops.MultiplyAdd(s.lerp_weight, distance, element.exp_avg)
                        : ops.MultiplyAdd(ops.Subtract(s.lerp_weight, 1.0f), distance, g);
    // _foreach_mul_(exp_avg_sqs, beta2); _foreach_addcmul_(exp_avg_sqs, grads, grads, 1 - beta2),
    // which leaves the rounding of the square out where its factor is 1
    const float decayed = ops.Multiply(element.exp_avg_sq, s.beta2);
    const float v = s.gradient_square_weight == 1.0f
                        ? ops.MultiplyAdd(g, g, decayed)
                        : ops.MultiplyAdd(s.gradient_square_weight, ops.Multiply(g, g), decayed);
    // _foreach_sqrt, _foreach_div_, _foreach_add_
    const float denominator =
        ops.Add(ops.Divide(ops.SquareRoot(v), s.root_of_bias_correction2), s.eps);
    // _foreach_addcdiv_(params, exp_avgs, denominators, -lr / (1 - beta1^t))
    p = ops.MultiplyAdd(s.negative_step_size, ops.Divide(m, denominator), p);
    return {p, m, v};
  }
};

struct TorchCuda210 {
  static constexpr device::Profile kProfile = device::Profile::kTorchCuda210;
  using Scalars = TorchCuda210Scalars;

  template <typename Ops>
  MOMENT_HOST_DEVICE static void Complete(const Ops& ops, Scalars& s) {
    float bias_correction1 = 1;
    if (s.corrects_bias) {
      bias_correction1 = static_cast<float>(ops.Subtract(1.0, ops.Power(s.beta1, s.t)));
      s.root_of_bias_correction2 =
          static_cast<float>(ops.SquareRoot(ops.Subtract(1.0, ops.Power(s.beta2, s.t))));
    }
    s.step_size = static_cast<float>(ops.Divide(s.lr, static_cast<double>(bias_correction1)));
  }

  template <typename Ops>
  MOMENT_HOST_DEVICE static device::AdamElement Update(const Ops& ops, const Scalars& s,
                                                       float gradient,
                                                       device::AdamElement element) {
    float g = Gradient(ops, s.gradient, gradient);
    float p = element.main;
    if (s.decays_gradient) {
      g = Rounded(ops, p, s.weight_decay, g);
    }
    if (s.decays_parameter) {
      p = Rounded(ops, s.negative_decay, p, p);
    }
    const double share = ops.Multiply(ops.Subtract(1.0, s.beta1), static_cast<double>(g));
    const float m = Rounded(ops, s.beta1, element.exp_avg, share);
    const double square = ops.Multiply(
        ops.Multiply(ops.Subtract(1.0, s.beta2), static_cast<double>(g)), static_cast<double>(g));
    const float v = Rounded(ops, s.beta2, element.exp_avg_sq, square);
    const float quotient = ops.Divide(ops.SquareRoot(v), s.root_of_bias_correction2);
    const float denominator = static_cast<float>(ops.Add(static_cast<double>(quotient), s.eps));
    return {FusedUpdate(ops, p, m, denominator, s.step_size), m, v};
  }

 private:
  template <typename Ops>
  MOMENT_HOST_DEVICE static float Rounded(const Ops& ops, double a, double b, double c) {
    return static_cast<float>(ops.MultiplyAdd(a, b, c));
  }
};

// Approximate reciprocal and square root, subnormal numbers flushed to zero.
struct Te {
  static constexpr device::Profile kProfile = device::Profile::kTe;
  using Scalars = TeScalars;

  template <typename Ops>
  MOMENT_HOST_DEVICE static void Complete(const Ops&, Scalars&) {}

  template <typename Ops>
  MOMENT_HOST_DEVICE static device::AdamElement Update(const Ops& ops, const Scalars& s,
                                                       float gradient,
                                                       device::AdamElement element) {
    float g = Gradient(ops, s.gradient, gradient);
    if (!s.is_adamw) {
      g = ops.MultiplyAddFlush(s.weight_decay, element.main, g);
    }
    const float m =
        ops.MultiplyAddFlush(element.exp_avg, s.beta1, ops.MultiplyFlush(s.gradient_weight, g));
    const float v =
        ops.MultiplyAddFlush(element.exp_avg_sq, s.beta2,
                             ops.MultiplyFlush(ops.MultiplyFlush(s.gradient_square_weight, g), g));
    const float root = ops.SquareRootApproximate(Quotient(ops, v, s.bias_correction2));
    float update = Quotient(ops, Quotient(ops, m, s.bias_correction1), ops.AddFlush(root, s.eps));
    if (s.is_adamw) {
      update = ops.MultiplyAddFlush(s.weight_decay, element.main, update);
    }
    return {ops.MultiplyAddFlush(s.negative_lr, update, element.main), m, v};
  }

 private:
  template <typename Ops>
  MOMENT_HOST_DEVICE static float Quotient(const Ops& ops, float a, float b) {
    return ops.MultiplyFlush(a, ops.ReciprocalApproximate(b));
  }
};

}  // namespace moment::cuda
