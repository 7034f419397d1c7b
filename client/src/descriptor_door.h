#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/src/unique_fd.h"

namespace moment::client {

// The ring's descriptors, as fd.sock hands them out.
struct RingDescriptors {
  UniqueFd control;
  UniqueFd slots;
  UniqueFd to_client;
  UniqueFd to_daemon;
};

// The client's side of fd.sock (descriptors.h): a connection a request. Thread-safe.
class DescriptorDoor {
 public:
  DescriptorDoor(std::string path, std::string token);

  absl::StatusOr<RingDescriptors> TakeRing() const;
  // The files of a pin's buckets, in their order. RESOURCE_EXHAUSTED if this process may not have
  // so many descriptors.
  absl::StatusOr<std::vector<UniqueFd>> TakePin(const std::string& pin, size_t count) const;
  // A pidfd of this process, so that the daemon sees its end across PID namespaces.
  absl::Status OfferPidfd() const;
  // Descriptors of GPU memory, for the next Attach or Step to name. Returns the number of the
  // first; the others follow it.
  absl::StatusOr<uint32_t> OfferMemory(absl::Span<const UniqueFd> chunks) const;

 private:
  const std::string path_;
  const std::string token_;
};

}  // namespace moment::client
