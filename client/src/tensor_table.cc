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

std::byte* TensorTable::Find(Kind kind, uint32_t tensor, uint64_t offset_bytes,
                             uint64_t length_bytes) const {
  if (tensor >= tensors_) {
    return nullptr;
  }
  const Buffer& buffer = kind == Kind::kParameter ? parameters_[tensor] : gradients_[tensor];
  if (buffer.data == nullptr || offset_bytes > buffer.length_bytes ||
      length_bytes > buffer.length_bytes - offset_bytes) {
    return nullptr;
  }
  return buffer.data + offset_bytes;
}

}  // namespace moment::client
