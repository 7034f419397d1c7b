#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cuda/registered_ranges.h"

namespace moment::cuda {

// One copy between the host and a slot.
struct HostCopy {
  std::byte* host = nullptr;
  uint64_t slot_offset = 0;
  uint64_t length_bytes = 0;
};

// Gives the host's data places in a slot, one behind the other, and lists the copies. Data that
// follows the last piece in memory joins its copy.
class HostStager {
 public:
  // A copy to the slot may bring this many unused bytes that lie between two pieces of data; one
  // from the slot none, since it would write them.
  static constexpr uint64_t kMaxGapBytes = 64;
  // Places are as far from a multiple of this as the caller asks.
  static constexpr uint64_t kAlignment = 16;

  // From `position` in the slot on. `copies` outlives it.
  HostStager(std::vector<HostCopy>& copies, uint64_t position, uint64_t max_gap_bytes,
             const RegisteredRanges& registered)
      : copies_(copies),
        first_(copies.size()),
        position_(position),
        max_gap_bytes_(max_gap_bytes),
        registered_(registered) {}

  // The offset in the slot, a multiple of `element_bytes`. Where no copy is joined, it is `rest`
  // above a multiple of kAlignment.
  uint64_t Place(std::byte* host, uint64_t length_bytes, uint64_t element_bytes, uint64_t rest);

  uint64_t position() const { return position_; }

 private:
  bool Joins(const std::byte* host, uint64_t element_bytes) const;

  std::vector<HostCopy>& copies_;
  const size_t first_;  // of the copies, ours
  uint64_t position_;
  const uint64_t max_gap_bytes_;
  const RegisteredRanges& registered_;
};

}  // namespace moment::cuda
