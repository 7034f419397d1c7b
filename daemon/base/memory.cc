#include "daemon/base/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "daemon/base/errors.h"

namespace moment::base {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;

}  // namespace

absl::StatusOr<AlignedBuffer> AlignedBuffer::Allocate(uint64_t length_bytes) {
  const bool huge = length_bytes >= kHugePage;
  const uint64_t alignment = huge ? kHugePage : kIoAlignment;
  const uint64_t size = RoundUp(length_bytes == 0 ? 1 : length_bytes, kIoAlignment);
  const uint64_t mapping_bytes = size + (huge ? alignment : 0);
  void* mapping = ::mmap(nullptr, mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return ErrnoStatus(errno, "map", "anonymous memory");
  }
  auto address = RoundUp(reinterpret_cast<uint64_t>(mapping), alignment);
  auto* data = reinterpret_cast<std::byte*>(address);
  if (huge) {
    ::madvise(data, size, MADV_HUGEPAGE);
  }
  return AlignedBuffer(mapping, mapping_bytes, data, size);
}

AlignedBuffer::AlignedBuffer(AlignedBuffer&& other) noexcept
    : mapping_(std::exchange(other.mapping_, nullptr)),
      mapping_bytes_(std::exchange(other.mapping_bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

AlignedBuffer& AlignedBuffer::operator=(AlignedBuffer&& other) noexcept {
  if (this != &other) {
    Unmap();
    mapping_ = std::exchange(other.mapping_, nullptr);
    mapping_bytes_ = std::exchange(other.mapping_bytes_, 0);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

AlignedBuffer::~AlignedBuffer() { Unmap(); }

void AlignedBuffer::Unmap() {
  if (mapping_ != nullptr) {
    ::munmap(mapping_, mapping_bytes_);
  }
}

}  // namespace moment::base
