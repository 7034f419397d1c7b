#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/ring_memory.h"
#include "daemon/device/transport.h"

namespace moment::device {

// The daemon's side of the ring (proto/moment/v1/ring.h, docs/internals/ring.md). One thread of its
// own waits for the client's acknowledgements, its death and Close, and runs every `done`.
//
// Nothing that the client writes is trusted: an acknowledgement of what was not issued, or a result
// that does not exist, closes the ring. A client cannot make the daemon fault (the memfds are
// sealed) or write anywhere but into the ring.
//
// Thread-safe. A `done` may call anything here but must not destroy the transport.
class RingTransport : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<RingTransport>> Create(const RingGeometry& geometry);
  ~RingTransport() override;  // closes, waits for every `done`
  RingTransport(const RingTransport&) = delete;
  RingTransport& operator=(const RingTransport&) = delete;

  uint32_t slot_count() const override;
  uint64_t slot_bytes() const override;
  uint32_t max_runs() const override;
  std::span<std::byte> slot(uint32_t index) const override;

  // Ends with INVALID_ARGUMENT if the command does not fit the ring or the client has no such
  // buffer, INTERNAL if the client calls the command malformed, ABORTED once the ring is closed.
  void Submit(TransportCommand* command) override;

  // Control memfd, slots memfd, to-client eventfd, to-daemon eventfd, as fd.sock passes them; owned
  // by the transport.
  std::array<int, 4> descriptors() const;

  // The Attach whose buffers the commands issued from here on mean. Call it while none is queued.
  void SetGeneration(uint64_t generation);

  // Closes the ring with ABORTED when this process ends. Keeps a duplicate of `pidfd`; a later call
  // replaces it. INVALID_ARGUMENT if it cannot be waited for.
  absl::Status WatchPeer(int pidfd);

  // Ends everything outstanding, queued or submitted later with ABORTED and the message of
  // `reason`; the first call counts. Returns at once: the transport's thread runs the `done`s.
  void Close(const absl::Status& reason);

 private:
  struct State;
  explicit RingTransport(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace moment::device
