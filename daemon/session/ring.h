#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/fd.h"
#include "daemon/device/transport.h"

namespace moment::session {

// The ring of one session as the session needs it: device::RingTransport in the daemon, a fake in
// tests. Thread-safe.
class Ring {
 public:
  virtual ~Ring() = default;

  virtual std::shared_ptr<device::Transport> transport() = 0;
  // Control memfd, slots memfd, to-client eventfd, to-daemon eventfd, for the client to keep.
  virtual absl::StatusOr<std::vector<base::UniqueFd>> Descriptors() = 0;
  // Closes the ring when this process ends; a later call replaces it.
  virtual absl::Status WatchPeer(const base::UniqueFd& pidfd) = 0;
  // Commands from here on mean the buffers of this Attach.
  virtual void SetGeneration(uint64_t generation) = 0;
  // Fails what is outstanding and all that follows.
  virtual void Close(const absl::Status& reason) = 0;
};

using MakeRing = std::function<absl::StatusOr<std::unique_ptr<Ring>>()>;

}  // namespace moment::session
