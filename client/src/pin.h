#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/moment/moment.h"
#include "client/src/connection.h"
#include "client/src/process.h"
#include "client/src/tensor_map.h"
#include "client/src/unique_fd.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::client {

// A pinned commit: its files, open to be read, and where every tensor lies in them. Independent of
// the store's client: it may outlive it, and reading goes on then. Immutable but for Release, which
// may come from any thread and waits for no other call.
class Pin {
 public:
  // `files` in the order of the response's buckets. INTERNAL if the response does not fit them.
  static absl::StatusOr<std::unique_ptr<Pin>> Make(const v1::PinResponse& response,
                                                   const TensorMap& tensors,
                                                   std::vector<UniqueFd> files,
                                                   std::weak_ptr<Connection> connection);
  ~Pin() { Release().IgnoreError(); }

  bool mine() const { return owner_.mine(); }
  const std::string& id() const { return id_; }
  const v1::CommitInfo& commit() const { return commit_; }
  uint64_t size_bytes() const { return size_bytes_; }
  // t, by the caller's tensor.
  const std::vector<uint64_t>& steps() const { return steps_; }
  // By tensor, segment and first element.
  const std::vector<moment_pin_piece>& pieces() const { return pieces_; }

  // Closes the files and lets the daemon drop the pin. OK if the session that made it is over: it
  // has dropped its pins. In a forked child, does nothing.
  absl::Status Release();

 private:
  Pin() = default;

  const ProcessOwner owner_;
  std::string id_;
  v1::CommitInfo commit_;
  uint64_t size_bytes_ = 0;
  std::vector<uint64_t> steps_;
  std::vector<moment_pin_piece> pieces_;
  std::vector<UniqueFd> files_;
  std::weak_ptr<Connection> connection_;
  bool released_ = false;
};

// Lets the daemon drop a pin, or give up the Pin call of this id. OK if the session is over.
absl::Status Unpin(Connection& connection, const std::string& id);

}  // namespace moment::client
