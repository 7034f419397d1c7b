#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "daemon/base/fd.h"
#include "proto/moment/v1/ring.h"

namespace moment::device {

struct RingGeometry {
  uint32_t slots = 4;
  uint64_t slot_bytes = uint64_t{16} << 20;  // a multiple of 4096
  uint32_t max_runs = 4096;                  // of one command
};

// Owns what both sides of a ring share, laid out as proto/moment/v1/ring.h says: the sealed memfds,
// their mappings (allocated in full at once: no page is found missing later) and the eventfds.
class RingMemory {
 public:
  // INVALID_ARGUMENT for a geometry that makes no sense, RESOURCE_EXHAUSTED without memory.
  static absl::StatusOr<RingMemory> Create(const RingGeometry& geometry);

  const RingGeometry& geometry() const { return geometry_; }
  // Control memfd, slots memfd, to-client eventfd, to-daemon eventfd; still owned here.
  std::array<int, 4> descriptors() const;
  int to_client() const { return to_client_.get(); }
  int to_daemon() const { return to_daemon_.get(); }

  v1::RingHeader& header() const;
  v1::RingCommand& command(uint64_t entry) const;
  v1::RingRun* runs(uint64_t entry) const;  // max_runs of them
  std::span<std::byte> slot(uint32_t index) const;

 private:
  // Owns a shared mapping of a sealed memfd.
  class Mapping {
   public:
    Mapping() = default;
    static absl::StatusOr<Mapping> Create(const char* name, uint64_t length_bytes);
    Mapping(Mapping&& other) noexcept;
    Mapping& operator=(Mapping&& other) noexcept;
    ~Mapping();

    int fd() const { return fd_.get(); }
    std::byte* data() const { return data_; }

   private:
    base::UniqueFd fd_;
    std::byte* data_ = nullptr;
    uint64_t length_bytes_ = 0;
  };

  RingMemory() = default;

  RingGeometry geometry_;
  Mapping control_;
  Mapping slots_;
  base::UniqueFd to_client_;
  base::UniqueFd to_daemon_;
};

}  // namespace moment::device
