#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "daemon/device/kernel_table.h"

namespace moment::device {

// The kernels over vectors of one instruction set. Vector is a type of an unnamed namespace
// (kernel_table.h says why) with kWidth, Load and Store by DataType, and one operation an operator:
// each rounds where adam_reference.cc rounds.
template <typename Vector>
struct VectorKernels {
  using Float = typename Vector::Float;
  static constexpr uint64_t kWidth = Vector::kWidth;

  static constexpr uint64_t Bytes(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

  struct Constants {
    Float gradient_scale, parameter_factor, weight_decay, lerp_coefficient, beta2,
        gradient_square_weight, root_of_bias_correction2, eps, negative_step_size;
    bool scales_gradient, negates_gradient, decays_parameter, decays_gradient, lerps_from_start,
        ieee_square_root;

    explicit Constants(const AdamConstants& c)
        : gradient_scale(Vector::Broadcast(c.gradient_scale)),
          parameter_factor(Vector::Broadcast(c.parameter_factor)),
          weight_decay(Vector::Broadcast(c.weight_decay)),
          lerp_coefficient(
              Vector::Broadcast(c.lerps_from_start ? c.lerp_weight : c.lerp_weight - 1.0f)),
          beta2(Vector::Broadcast(c.beta2)),
          gradient_square_weight(Vector::Broadcast(c.gradient_square_weight)),
          root_of_bias_correction2(Vector::Broadcast(c.root_of_bias_correction2)),
          eps(Vector::Broadcast(c.eps)),
          negative_step_size(Vector::Broadcast(c.negative_step_size)),
          scales_gradient(c.scales_gradient),
          negates_gradient(c.negates_gradient),
          decays_parameter(c.decays_parameter),
          decays_gradient(c.decays_gradient),
          lerps_from_start(c.lerps_from_start),
          ieee_square_root(c.ieee_square_root) {}
  };

  struct Element {
    Float main, exp_avg, exp_avg_sq;
  };

  static inline Element Update(const Constants& c, Float g, Element element) {
    Float p = element.main;
    if (c.scales_gradient) {
      g = Vector::Multiply(g, c.gradient_scale);
    }
    if (c.negates_gradient) {
      g = Vector::Negate(g);
    }
    if (c.decays_parameter) {
      p = Vector::Multiply(p, c.parameter_factor);
    }
    if (c.decays_gradient) {
      g = Vector::MultiplyAdd(p, c.weight_decay, g);
    }
    const Float distance = Vector::Subtract(g, element.exp_avg);
    const Float nearer_end = c.lerps_from_start ? element.exp_avg : g;
    const Float m = Vector::MultiplyAdd(c.lerp_coefficient, distance, nearer_end);
    const Float decayed = Vector::Multiply(element.exp_avg_sq, c.beta2);
    const Float v = Vector::MultiplyAdd(Vector::Multiply(c.gradient_square_weight, g), g, decayed);
    const Float root = c.ieee_square_root ? Vector::SquareRoot(v) : Vector::SquareRootMkl(v);
    const Float denominator = Vector::Add(Vector::Divide(root, c.root_of_bias_correction2), c.eps);
    p = Vector::Add(p, Vector::Divide(Vector::Multiply(c.negative_step_size, m), denominator));
    return {p, m, v};
  }

  template <DataType ExpAvg, DataType ExpAvgSq, DataType Gradient, DataType Parameter>
  static inline void Block(const Constants& constants, const AdamArrays& arrays, uint64_t i) {
    Element element;
    element.main = Vector::template Load<DataType::kFloat32>(arrays.main_in, i);
    element.exp_avg = arrays.exp_avg_in == nullptr
                          ? Vector::Broadcast(0.0f)
                          : Vector::template Load<ExpAvg>(arrays.exp_avg_in, i);
    element.exp_avg_sq = arrays.exp_avg_sq_in == nullptr
                             ? Vector::Broadcast(0.0f)
                             : Vector::template Load<ExpAvgSq>(arrays.exp_avg_sq_in, i);
    element = Update(constants, Vector::template Load<Gradient>(arrays.gradient, i), element);
    Vector::template Store<DataType::kFloat32>(element.main, arrays.main_out, i);
    Vector::template Store<ExpAvg>(element.exp_avg, arrays.exp_avg_out, i);
    Vector::template Store<ExpAvgSq>(element.exp_avg_sq, arrays.exp_avg_sq_out, i);
    Vector::template Store<Parameter>(element.main, arrays.parameter, i);
  }

  // Room for one vector of the widest type.
  struct Padded {
    alignas(64) std::byte bytes[kWidth * 4] = {};

    Padded() = default;
    Padded(const void* from, uint64_t first, uint64_t count, DataType type) {
      if (from != nullptr) {
        std::memcpy(bytes, static_cast<const std::byte*>(from) + first * Bytes(type),
                    count * Bytes(type));
      }
    }
    void CopyTo(void* to, uint64_t first, uint64_t count, DataType type) const {
      std::memcpy(static_cast<std::byte*>(to) + first * Bytes(type), bytes, count * Bytes(type));
    }
  };

  // The last `count` elements, fewer than a vector, by way of the stack: the same operations.
  template <DataType ExpAvg, DataType ExpAvgSq, DataType Gradient, DataType Parameter>
  static inline void Tail(const Constants& constants, const AdamArrays& arrays, uint64_t first,
                          uint64_t count) {
    Padded main(arrays.main_in, first, count, DataType::kFloat32);
    Padded exp_avg(arrays.exp_avg_in, first, count, ExpAvg);
    Padded exp_avg_sq(arrays.exp_avg_sq_in, first, count, ExpAvgSq);
    const Padded gradient(arrays.gradient, first, count, Gradient);
    Padded parameter;
    AdamArrays padded;
    padded.main_in = padded.main_out = main.bytes;
    padded.exp_avg_in = padded.exp_avg_out = exp_avg.bytes;
    padded.exp_avg_sq_in = padded.exp_avg_sq_out = exp_avg_sq.bytes;
    padded.gradient = gradient.bytes;
    padded.parameter = parameter.bytes;
    Block<ExpAvg, ExpAvgSq, Gradient, Parameter>(constants, padded, 0);
    main.CopyTo(arrays.main_out, first, count, DataType::kFloat32);
    exp_avg.CopyTo(arrays.exp_avg_out, first, count, ExpAvg);
    exp_avg_sq.CopyTo(arrays.exp_avg_sq_out, first, count, ExpAvgSq);
    parameter.CopyTo(arrays.parameter, first, count, Parameter);
  }

  template <DataType ExpAvg, DataType ExpAvgSq, DataType Gradient, DataType Parameter>
  static void Adam(const AdamConstants& scalars, const AdamArrays& arrays) {
    const Constants constants(scalars);
    uint64_t i = 0;
    for (; i + kWidth <= arrays.count; i += kWidth) {
      Block<ExpAvg, ExpAvgSq, Gradient, Parameter>(constants, arrays, i);
    }
    if (i < arrays.count) {
      Tail<ExpAvg, ExpAvgSq, Gradient, Parameter>(constants, arrays, i, arrays.count - i);
    }
  }

  template <DataType From, DataType To>
  static void Convert(const void* from, void* to, uint64_t count) {
    if constexpr (From == To) {
      std::memmove(to, from, count * Bytes(To));
    } else {
      uint64_t i = 0;
      for (; i + kWidth <= count; i += kWidth) {
        Vector::template Store<To>(Vector::template Load<From>(from, i), to, i);
      }
      if (i < count) {
        const Padded in(from, i, count - i, From);
        Padded out;
        Vector::template Store<To>(Vector::template Load<From>(in.bytes, 0), out.bytes, 0);
        out.CopyTo(to, i, count - i, To);
      }
    }
  }

  template <DataType Parameter>
  static inline void RefreshBlock(const void* parameter, const void* main_in, void* main_out,
                                  uint64_t i) {
    const Float main = Vector::template Load<DataType::kFloat32>(main_in, i);
    Vector::template Store<DataType::kFloat32>(
        Vector::template Refreshed<Parameter>(main, parameter, i), main_out, i);
  }

  template <DataType Parameter>
  static void Refresh(const void* parameter, const void* main_in, void* main_out, uint64_t count) {
    if constexpr (Parameter == DataType::kFloat32) {
      std::memmove(main_out, parameter, count * Bytes(Parameter));
    } else {
      uint64_t i = 0;
      for (; i + kWidth <= count; i += kWidth) {
        RefreshBlock<Parameter>(parameter, main_in, main_out, i);
      }
      if (i < count) {
        const Padded tail(parameter, i, count - i, Parameter);
        Padded main(main_in, i, count - i, DataType::kFloat32);
        RefreshBlock<Parameter>(tail.bytes, main.bytes, main.bytes, 0);
        main.CopyTo(main_out, i, count - i, DataType::kFloat32);
      }
    }
  }
};

}  // namespace moment::device
