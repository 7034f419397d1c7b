#include "tests/pipeline/reference.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "daemon/device/adam_reference.h"
#include "daemon/device/float_conversion.h"

namespace moment::pipeline {
namespace {

float WidenBits(uint16_t bits, device::DataType type) {
  return type == device::DataType::kBFloat16 ? device::WidenBFloat16(bits)
                                             : device::WidenFloat16(bits);
}

uint16_t NarrowBits(float value, device::DataType type) {
  return type == device::DataType::kBFloat16 ? device::NarrowBFloat16(value)
                                             : device::NarrowFloat16(value);
}

float Rounded(float value, device::DataType type) {
  return type == device::DataType::kFloat32 ? value : WidenBits(NarrowBits(value, type), type);
}

}  // namespace

std::vector<float> Widen(const std::byte* bytes, uint64_t count, device::DataType type) {
  std::vector<float> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    if (type == device::DataType::kFloat32) {
      std::memcpy(&values[i], bytes + 4 * i, 4);
    } else {
      uint16_t bits = 0;
      std::memcpy(&bits, bytes + 2 * i, 2);
      values[i] = WidenBits(bits, type);
    }
  }
  return values;
}

std::vector<std::byte> Narrow(const std::vector<float>& values, device::DataType type) {
  std::vector<std::byte> bytes(values.size() * device::SizeBytes(type));
  for (size_t i = 0; i < values.size(); ++i) {
    if (type == device::DataType::kFloat32) {
      std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    } else {
      const uint16_t bits = NarrowBits(values[i], type);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
    }
  }
  return bytes;
}

std::vector<std::byte> RandomValues(uint64_t seed, uint64_t count, device::DataType type) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const uint64_t bits = random();
    const float magnitude =
        std::ldexp(static_cast<float>(bits >> 40), -24 - static_cast<int>(bits & 15));
    value = (bits & 0xff0) == 0 ? 0.0f : (bits & 0x1000) != 0 ? -magnitude : magnitude;
  }
  return Narrow(values, type);
}

Reference::Reference(const std::vector<uint64_t>& sizes, const ModelTypes& types)
    : types_(types), tensors_(sizes.size()) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    tensors_[i].main.resize(sizes[i]);
    tensors_[i].exp_avg.resize(sizes[i]);
    tensors_[i].exp_avg_sq.resize(sizes[i]);
  }
}

void Reference::Refresh(size_t tensor, const std::vector<std::byte>& parameter, bool keep) {
  ReferenceTensor& of = tensors_[tensor];
  of.main = Widen(parameter.data(), of.main.size(), types_.parameter);
  if (!keep) {
    of.exp_avg.assign(of.main.size(), 0);
    of.exp_avg_sq.assign(of.main.size(), 0);
    of.t = 0;
  }
}

void Reference::Step(const std::vector<std::vector<std::byte>>& gradients,
                     const std::vector<device::Hyperparameters>& groups,
                     const std::vector<uint32_t>& group_of) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (group_of[i] == UINT32_MAX) {
      continue;
    }
    ReferenceTensor& of = tensors_[i];
    const auto constants =
        device::MakeAdamConstants(groups[group_of[i]], ++of.t, device::Profile::kTorchCpu);
    const std::vector<float> gradient = Widen(gradients[i].data(), of.main.size(), types_.gradient);
    for (size_t e = 0; e < of.main.size(); ++e) {
      const device::AdamElement result =
          device::AdamUpdate(constants, gradient[e], {of.main[e], of.exp_avg[e], of.exp_avg_sq[e]});
      of.main[e] = result.main;
      of.exp_avg[e] = Rounded(result.exp_avg, types_.exp_avg);
      of.exp_avg_sq[e] = Rounded(result.exp_avg_sq, types_.exp_avg_sq);
    }
  }
}

std::vector<std::byte> Reference::Parameter(size_t tensor) const {
  return Narrow(tensors_[tensor].main, types_.parameter);
}

}  // namespace moment::pipeline
