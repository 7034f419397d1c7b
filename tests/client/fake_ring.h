#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "client/src/ring_executor.h"
#include "client/src/unique_fd.h"
#include "proto/moment/v1/ring.h"

namespace moment::testing {

// The daemon's end of a ring: makes the memfds and eventfds, gives one command at a time and waits
// for it. One thread.
class FakeRing {
 public:
  FakeRing(uint32_t slots, uint64_t slot_bytes, uint32_t max_runs);

  // Duplicates, for the client to keep: control, slots, to-client, to-daemon.
  client::RingDescriptors Descriptors() const;
  // Runs one command with one run on slot 0; the result as the client wrote it.
  v1::RingResult Run(v1::RingOp op, uint64_t generation, v1::RingRun run, uint64_t binding = 0);
  // Any command, also a wrong one.
  v1::RingResult RunRaw(v1::RingCommand command, const std::vector<v1::RingRun>& runs);
  // No answer came.
  bool timed_out() const { return timed_out_; }

  std::byte* slot(uint32_t index) { return slots_.data() + index * slot_bytes_; }
  uint64_t slot_bytes() const { return slot_bytes_; }
  uint32_t slot_count() const { return slot_count_; }
  v1::RingHeader* header() { return reinterpret_cast<v1::RingHeader*>(control_.data()); }

 private:
  const uint32_t slot_count_;
  const uint64_t slot_bytes_;
  const uint32_t max_runs_;
  client::UniqueFd control_fd_;
  client::UniqueFd slots_fd_;
  client::UniqueFd to_client_;
  client::UniqueFd to_daemon_;
  client::Mapping control_;
  client::Mapping slots_;
  uint64_t issued_ = 0;
  bool timed_out_ = false;
};

}  // namespace moment::testing
