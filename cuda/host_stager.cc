#include "cuda/host_stager.h"

#include "daemon/base/memory.h"

namespace moment::cuda {

bool HostStager::Joins(const std::byte* host, uint64_t element_bytes) const {
  if (copies_.size() == first_) {
    return false;
  }
  const HostCopy& last = copies_.back();
  const std::byte* const end = last.host + last.length_bytes;
  const auto gap = reinterpret_cast<uint64_t>(host) - reinterpret_cast<uint64_t>(end);
  const uint64_t offset = last.slot_offset + last.length_bytes + gap;
  return gap <= max_gap_bytes_ && offset % element_bytes == 0 &&
         registered_.Together(end - 1, host);
}

uint64_t HostStager::Place(std::byte* host, uint64_t length_bytes, uint64_t element_bytes,
                           uint64_t rest) {
  if (Joins(host, element_bytes)) {
    HostCopy& last = copies_.back();
    const uint64_t offset = last.slot_offset + static_cast<uint64_t>(host - last.host);
    last.length_bytes = offset + length_bytes - last.slot_offset;
    position_ = offset + length_bytes;
    return offset;
  }
  const uint64_t offset = base::RoundUp(position_, kAlignment) + rest;
  copies_.push_back({host, offset, length_bytes});
  position_ = offset + length_bytes;
  return offset;
}

}  // namespace moment::cuda
