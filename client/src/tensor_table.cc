#include "client/src/tensor_table.h"

#include <utility>

namespace moment::client {

TensorTable::TensorTable(size_t tensors)
    : tensors_(tensors), parameters_(tensors), gradients_(tensors) {}

void TensorTable::BindParameters(std::vector<Buffer> buffers, uint64_t generation) {
  buffers.resize(tensors_);
  absl::MutexLock lock(&mutex_);
  parameters_ = std::move(buffers);
  generation_ = generation;
}

void TensorTable::BindGradients(std::vector<Buffer> buffers) {
  buffers.resize(tensors_);
  absl::MutexLock lock(&mutex_);
  gradients_ = std::move(buffers);
}

void TensorTable::BindSegments(const std::vector<SegmentBuffer>& buffers, uint64_t binding) {
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, Buffer> segments;
  segments.reserve(buffers.size());
  for (const SegmentBuffer& of : buffers) {
    segments[{of.tensor, of.segment}] = of.buffer;
  }
  absl::MutexLock lock(&mutex_);
  segments_ = std::move(segments);
  binding_ = binding;
}

void TensorTable::ClearSegments() {
  absl::MutexLock lock(&mutex_);
  segments_ = {};
}

void TensorTable::ClearParameters() {
  absl::MutexLock lock(&mutex_);
  parameters_.assign(tensors_, Buffer{});
}

void TensorTable::ClearGradients() {
  absl::MutexLock lock(&mutex_);
  gradients_.assign(tensors_, Buffer{});
}

void TensorTable::SetGeneration(uint64_t generation) {
  absl::MutexLock lock(&mutex_);
  generation_ = generation;
}

Buffer TensorTable::Find(Kind kind, uint32_t tensor, uint64_t offset_bytes,
                         uint64_t length_bytes) const {
  if (tensor >= tensors_) {
    return {};
  }
  return Within(kind == Kind::kParameter ? parameters_[tensor] : gradients_[tensor], offset_bytes,
                length_bytes);
}

Buffer TensorTable::FindSegment(uint64_t binding, uint32_t tensor, uint32_t segment,
                                uint64_t offset_bytes, uint64_t length_bytes) const {
  const auto found = segments_.find({tensor, segment});
  if (binding != binding_ || found == segments_.end()) {
    return {};
  }
  return Within(found->second, offset_bytes, length_bytes);
}

Buffer TensorTable::Within(const Buffer& buffer, uint64_t offset_bytes, uint64_t length_bytes) {
  if (buffer.data == nullptr || offset_bytes > buffer.length_bytes ||
      length_bytes > buffer.length_bytes - offset_bytes) {
    return {};
  }
  return {buffer.data + offset_bytes, length_bytes, buffer.gpu};
}

}  // namespace moment::client
