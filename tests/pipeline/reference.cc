#include "tests/pipeline/reference.h"

#include <bit>

#include "daemon/device/adam_constants.h"
#include "daemon/device/kernels.h"

namespace moment::pipeline {
namespace {

device::DataType TypeOf(const ModelTypes& types, int segment) {
  return segment == device::kMain     ? device::DataType::kFloat32
         : segment == device::kExpAvg ? types.exp_avg
                                      : types.exp_avg_sq;
}

void Convert(const std::vector<std::byte>& from, device::DataType from_type,
             std::vector<std::byte>& to, device::DataType to_type, uint64_t count) {
  device::FindConvertKernel(device::BestInstructionSet(), from_type, to_type)(from.data(),
                                                                              to.data(), count);
}

}  // namespace

std::vector<std::byte> RandomValues(uint64_t seed, uint64_t count, device::DataType type) {
  std::vector<float> values(count);
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (float& value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<uint32_t>(state >> 32);
    // Sign and mantissa at random, exponents from 2^-16 to 2^-1.
    const uint32_t exponent = 111 + (bits >> 23 & 15);
    value = (bits >> 27 & 15) == 0
                ? 0.0f
                : std::bit_cast<float>((bits & 0x80000000u) | exponent << 23 | (bits & 0x7fffffu));
  }
  std::vector<std::byte> bytes(count * SizeBytes(type));
  device::FindConvertKernel(device::BestInstructionSet(), device::DataType::kFloat32, type)(
      values.data(), bytes.data(), count);
  return bytes;
}

Reference::Reference(const std::vector<uint64_t>& sizes, const ModelTypes& types)
    : types_(types), tensors_(sizes.size()) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    tensors_[i].count = sizes[i];
    tensors_[i].parameter.resize(sizes[i] * SizeBytes(types.parameter));
    for (int s = 0; s < device::kSegmentCount; ++s) {
      tensors_[i].segments[s].resize(sizes[i] * SizeBytes(TypeOf(types, s)));
    }
  }
}

void Reference::Refresh(size_t tensor, const std::vector<std::byte>& parameter, bool keep) {
  ReferenceTensor& of = tensors_[tensor];
  of.parameter = parameter;
  std::byte* main = of.segments[device::kMain].data();
  if (keep) {
    device::FindRefreshKernel(device::BestInstructionSet(), types_.parameter)(parameter.data(),
                                                                              main, main, of.count);
    return;
  }
  device::FindConvertKernel(device::BestInstructionSet(), types_.parameter,
                            device::DataType::kFloat32)(parameter.data(), main, of.count);
  for (const int segment : {device::kExpAvg, device::kExpAvgSq}) {
    of.segments[segment].assign(of.segments[segment].size(), std::byte{0});
  }
  of.t = 0;
}

void Reference::Write(size_t tensor, int segment, const std::vector<std::byte>& bytes,
                      device::DataType type) {
  ReferenceTensor& of = tensors_[tensor];
  Convert(bytes, type, of.segments[segment], TypeOf(types_, segment), of.count);
}

void Reference::WriteZeros(size_t tensor, int segment) {
  std::vector<std::byte>& bytes = tensors_[tensor].segments[segment];
  bytes.assign(bytes.size(), std::byte{0});
}

std::vector<std::byte> Reference::Read(size_t tensor, int segment, device::DataType type) const {
  const ReferenceTensor& of = tensors_[tensor];
  std::vector<std::byte> bytes(of.count * SizeBytes(type));
  Convert(of.segments[segment], TypeOf(types_, segment), bytes, type, of.count);
  return bytes;
}

void Reference::Materialize(size_t tensor) {
  ReferenceTensor& of = tensors_[tensor];
  Convert(of.segments[device::kMain], device::DataType::kFloat32, of.parameter, types_.parameter,
          of.count);
}

void Reference::Step(const std::vector<std::vector<std::byte>>& gradients,
                     const std::vector<device::Hyperparameters>& groups,
                     const std::vector<uint32_t>& group_of) {
  const device::AdamTypes types{types_.exp_avg, types_.exp_avg_sq, types_.gradient,
                                types_.parameter};
  const auto adam = device::FindAdamKernel(device::BestInstructionSet(), types);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (group_of[i] == UINT32_MAX) {
      continue;
    }
    ReferenceTensor& of = tensors_[i];
    device::AdamArrays arrays;
    arrays.main_in = of.segments[device::kMain].data();
    arrays.exp_avg_in = of.segments[device::kExpAvg].data();
    arrays.exp_avg_sq_in = of.segments[device::kExpAvgSq].data();
    arrays.main_out = of.segments[device::kMain].data();
    arrays.exp_avg_out = of.segments[device::kExpAvg].data();
    arrays.exp_avg_sq_out = of.segments[device::kExpAvgSq].data();
    arrays.gradient = gradients[i].data();
    arrays.parameter = of.parameter.data();
    arrays.count = of.count;
    adam(device::MakeAdamConstants(groups[group_of[i]], ++of.t, device::Profile::kTorchCpu),
         arrays);
  }
}

}  // namespace moment::pipeline
