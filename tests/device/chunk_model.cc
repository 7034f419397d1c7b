#include "tests/device/chunk_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "daemon/device/float_conversion.h"

namespace moment::device {
namespace {

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kBFloat16, DataType::kFloat16};

float Load(const std::vector<std::byte>& bytes, DataType type, uint64_t index) {
  if (type == DataType::kFloat32) {
    float value;
    std::memcpy(&value, bytes.data() + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + index * 2, 2);
  return type == DataType::kBFloat16 ? WidenBFloat16(bits) : WidenFloat16(bits);
}

void Store(float value, std::vector<std::byte>& bytes, DataType type, uint64_t index) {
  if (type == DataType::kFloat32) {
    std::memcpy(bytes.data() + index * 4, &value, 4);
    return;
  }
  const uint16_t bits = type == DataType::kBFloat16 ? NarrowBFloat16(value) : NarrowFloat16(value);
  std::memcpy(bytes.data() + index * 2, &bits, 2);
}

std::vector<std::byte> RandomValues(std::mt19937_64& random, DataType type, uint64_t count,
                                    bool non_negative) {
  std::vector<std::byte> bytes(count * SizeBytes(type));
  for (uint64_t i = 0; i < count; ++i) {
    // Uniform in (-1, 1); a division is faster than a distribution's.
    const float value = static_cast<float>(static_cast<int64_t>(random() >> 40)) * 0x1p-23f - 1.0f;
    Store(non_negative ? std::fabs(value) * 1e-3f : value, bytes, type, i);
  }
  return bytes;
}

Hyperparameters RandomHyperparameters(std::mt19937_64& random) {
  std::uniform_real_distribution<double> unit;
  Hyperparameters h;
  h.lr = unit(random) * 0.01;
  h.beta1 = unit(random);
  h.beta2 = 0.9 + 0.1 * unit(random);
  h.eps = 1e-8;
  h.weight_decay = random() % 2 == 0 ? 0 : unit(random) * 0.1;
  h.mode = random() % 2 == 0 ? AdamMode::kAdam : AdamMode::kAdamW;
  h.bias_correction = random() % 3 != 0;
  h.maximize = random() % 3 == 0;
  h.gradient_scale = random() % 2 == 0 ? 1.0f : 0.37f;
  return h;
}

Run RandomRun(std::mt19937_64& random, uint64_t first, uint64_t count, uint32_t tensor) {
  Run run;
  run.tensor = tensor;
  run.hyperparameters = static_cast<uint32_t>(random() % 3);
  run.first = first;
  run.count = count;
  run.t = 1 + random() % 1000;
  run.participates = random() % 4 != 0;
  run.gradient_type = kTypes[random() % 3];
  run.parameter_type = kTypes[random() % 3];
  for (DataType& type : run.buffer_types) {
    type = kTypes[random() % 3];
  }
  return run;
}

}  // namespace

ChunkShape RandomShape(std::mt19937_64& random, uint64_t elements, uint64_t largest_run) {
  ChunkShape shape;
  shape.elements = elements;
  shape.types[kExpAvg] = kTypes[random() % 3];
  shape.types[kExpAvgSq] = kTypes[random() % 2];
  for (int i = 0; i < 3; ++i) {
    shape.hyperparameters.push_back(RandomHyperparameters(random));
  }
  uint64_t position = 0;
  while (position < elements) {
    position += random() % 3 == 0 ? random() % 5 : 0;  // a gap
    const uint64_t count = random() % (largest_run + 1);
    if (position + count > elements) {
      break;
    }
    shape.runs.push_back(
        RandomRun(random, position, count, static_cast<uint32_t>(shape.runs.size())));
    shape.asks_for.push_back({random() % 3 != 0, random() % 3 != 0, random() % 3 != 0});
    position += count;
  }
  return shape;
}

ChunkBytes RandomBytes(std::mt19937_64& random, const ChunkShape& shape) {
  ChunkBytes bytes;
  for (int s = 0; s < kSegmentCount; ++s) {
    bytes.segments[s] = RandomValues(random, shape.types[s], shape.elements, s == kExpAvgSq);
  }
  for (const Run& run : shape.runs) {
    bytes.gradients.push_back(RandomValues(random, run.gradient_type, run.count, false));
    bytes.parameters.push_back(RandomValues(random, run.parameter_type, run.count, false));
    auto& buffers = bytes.buffers.emplace_back();
    for (int s = 0; s < kSegmentCount; ++s) {
      buffers[static_cast<size_t>(s)] =
          RandomValues(random, run.buffer_types[s], run.count, s == kExpAvgSq);
    }
    // About half of the parameters are what their mains round to.
    for (uint64_t i = 0; i < run.count; i += 1 + random() % 3) {
      Store(Load(bytes.segments[kMain], DataType::kFloat32, run.first + i), bytes.parameters.back(),
            run.parameter_type, i);
    }
  }
  return bytes;
}

namespace {

void ExpectAdam(const DeviceUnderTest& device, const ChunkShape& shape, size_t index,
                ChunkBytes& bytes) {
  const Run& run = shape.runs[index];
  for (uint64_t i = 0; i < run.count; ++i) {
    const uint64_t at = run.first + i;
    AdamElement element{Load(bytes.segments[kMain], shape.types[kMain], at),
                        Load(bytes.segments[kExpAvg], shape.types[kExpAvg], at),
                        Load(bytes.segments[kExpAvgSq], shape.types[kExpAvgSq], at)};
    const float gradient = Load(bytes.gradients[index], run.gradient_type, i);
    element =
        device.reference(shape.hyperparameters[run.hyperparameters], run.t, gradient, element);
    Store(element.main, bytes.segments[kMain], shape.types[kMain], at);
    Store(element.exp_avg, bytes.segments[kExpAvg], shape.types[kExpAvg], at);
    Store(element.exp_avg_sq, bytes.segments[kExpAvgSq], shape.types[kExpAvgSq], at);
    Store(element.main, bytes.parameters[index], run.parameter_type, i);
  }
}

// Whether `value` rounds to element `index` of `bytes`, bit for bit.
bool RoundsTo(float value, const std::vector<std::byte>& bytes, DataType type, uint64_t index) {
  std::vector<std::byte> rounded(SizeBytes(type));
  Store(value, rounded, type, 0);
  return std::memcmp(rounded.data(), bytes.data() + index * rounded.size(), rounded.size()) == 0;
}

void ExpectConversion(const ChunkShape& shape, size_t index, ChunkOp op, bool mains_fresh,
                      ChunkBytes& bytes) {
  const Run& run = shape.runs[index];
  for (uint64_t i = 0; i < run.count; ++i) {
    const uint64_t at = run.first + i;
    if (op == ChunkOp::kRefresh) {
      const float main = Load(bytes.segments[kMain], DataType::kFloat32, at);
      if (mains_fresh || !RoundsTo(main, bytes.parameters[index], run.parameter_type, i)) {
        Store(Load(bytes.parameters[index], run.parameter_type, i), bytes.segments[kMain],
              DataType::kFloat32, at);
      }
    } else {
      Store(Load(bytes.segments[kMain], DataType::kFloat32, at), bytes.parameters[index],
            run.parameter_type, i);
    }
  }
}

void ExpectTransfer(const ChunkShape& shape, size_t index, ChunkOp op, bool moments_zero,
                    ChunkBytes& bytes) {
  const Run& run = shape.runs[index];
  for (int s = 0; s < kSegmentCount; ++s) {
    for (uint64_t i = 0; shape.asks_for[index][static_cast<size_t>(s)] && i < run.count; ++i) {
      const uint64_t at = run.first + i;
      if (op == ChunkOp::kWrite) {
        Store(Load(bytes.buffers[index][static_cast<size_t>(s)], run.buffer_types[s], i),
              bytes.segments[s], shape.types[s], at);
      } else {
        const bool zero = s != kMain && moments_zero;
        Store(zero ? 0.0f : Load(bytes.segments[s], shape.types[s], at),
              bytes.buffers[index][static_cast<size_t>(s)], run.buffer_types[s], i);
      }
    }
  }
}

}  // namespace

ChunkBytes Expected(const DeviceUnderTest& device, const ChunkShape& shape, ChunkOp op,
                    bool moments_zero, const ChunkBytes& before, bool mains_fresh) {
  ChunkBytes bytes = before;
  if (moments_zero && !OnlyReads(op)) {
    for (int s : {kExpAvg, kExpAvgSq}) {
      std::fill(bytes.segments[s].begin(), bytes.segments[s].end(), std::byte{0});
    }
  }
  for (size_t i = 0; i < shape.runs.size(); ++i) {
    if (!shape.runs[i].participates) {
      continue;
    }
    if (op == ChunkOp::kAdam) {
      ExpectAdam(device, shape, i, bytes);
    } else if (op == ChunkOp::kRead || op == ChunkOp::kWrite) {
      ExpectTransfer(shape, i, op, moments_zero, bytes);
    } else {
      ExpectConversion(shape, i, op, mains_fresh, bytes);
    }
  }
  return bytes;
}

ChunkCall::ChunkCall(const ChunkShape& shape, Profile profile, ChunkOp op, ChunkBytes& bytes,
                     ChunkBytes* in)
    : runs(shape.runs) {
  for (size_t i = 0; i < runs.size(); ++i) {
    runs[i].gradient = bytes.gradients[i].data();
    runs[i].parameter = bytes.parameters[i].data();
    for (int s = 0; i < shape.asks_for.size() && s < kSegmentCount; ++s) {
      runs[i].buffers[s] = shape.asks_for[i][static_cast<size_t>(s)]
                               ? bytes.buffers[i][static_cast<size_t>(s)].data()
                               : nullptr;
    }
  }
  work.op = op;
  work.profile = profile;
  std::copy(std::begin(shape.types), std::end(shape.types), work.segment_types);
  work.elements = shape.elements;
  for (int s = 0; s < kSegmentCount; ++s) {
    work.in.data[s] = (in != nullptr ? *in : bytes).segments[s].data();
    work.out.data[s] = bytes.segments[s].data();
  }
  work.runs = runs;
  work.hyperparameters = shape.hyperparameters;
  work.done = &ChunkCall::Done;
  work.context = this;
}

absl::Status ChunkCall::Wait() {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&done_));
  return status_;
}

void ChunkCall::Done(ChunkWork* work, absl::Status status) noexcept {
  auto* call = static_cast<ChunkCall*>(work->context);
  absl::MutexLock lock(&call->mutex_);
  call->status_ = std::move(status);
  ++call->times_done_;
  call->done_ = true;
}

}  // namespace moment::device
