#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace moment::base {

// Direct I/O: addresses, offsets and lengths are multiples of this everywhere in the project.
inline constexpr uint64_t kIoAlignment = 4096;

constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr uint64_t RoundDown(uint64_t value, uint64_t multiple) {
  return value / multiple * multiple;
}

// Owns an anonymous mapping, zeroed, aligned to kIoAlignment (to 2 MiB and advised to use huge
// pages where it is that large).
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  // RESOURCE_EXHAUSTED when the system has no such memory.
  static absl::StatusOr<AlignedBuffer> Allocate(uint64_t length_bytes);
  AlignedBuffer(AlignedBuffer&& other) noexcept;
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept;
  ~AlignedBuffer();

  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  std::span<std::byte> span() const { return {data_, size_}; }

 private:
  AlignedBuffer(void* mapping, uint64_t mapping_bytes, std::byte* data, uint64_t size)
      : mapping_(mapping), mapping_bytes_(mapping_bytes), data_(data), size_(size) {}
  void Unmap();

  void* mapping_ = nullptr;
  uint64_t mapping_bytes_ = 0;
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace moment::base
