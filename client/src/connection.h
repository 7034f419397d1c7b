#pragma once

#include <memory>
#include <string>
#include <vector>

#include <grpcpp/channel.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/src/canceller.h"
#include "client/src/descriptor_door.h"
#include "client/src/gpu_regions.h"
#include "client/src/ring_executor.h"
#include "client/src/session_keeper.h"
#include "client/src/tensor_table.h"
#include "moment/v1/optimizer.grpc.pb.h"

namespace moment::client {

// A channel of its own to the daemon at this path: no back-off or connection is shared with others.
std::shared_ptr<grpc::Channel> Dial(const std::string& socket_path);

// Waits until the daemon's health service says that it serves.
absl::Status AwaitHealth(const std::string& socket_path, absl::Duration timeout);

// One connection to a daemon and the one session on it: Open, the session's stream, the ring. Made
// anew at each reconnect. Used by one thread at a time.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `request` as the trainer gave it, with what the reconnect adds. The timeout is for reaching the
  // daemon: Open itself may reserve many gigabytes.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const std::string& socket_path,
                                                          const v1::OpenRequest& request,
                                                          absl::Duration connect_timeout,
                                                          Canceller& canceller);

  // Ends `session`, if the daemon still has it; a reconnecting client ends its own old one this
  // way.
  static void EndSession(const std::string& socket_path, const std::string& session,
                         absl::Duration timeout);

  v1::Optimizer::Stub& stub() { return *stub_; }
  const v1::OpenResponse& opened() const { return opened_; }
  const std::string& session() const { return opened_.session(); }
  // False when the daemon has ended the session, or is gone.
  bool alive() const { return keeper_->alive(); }
  bool Confirm(absl::Duration timeout) { return keeper_->Confirm(timeout); }
  std::string end_reason() const { return keeper_->end_reason(); }

  // Attaches the table's buffers and starts the ring.
  absl::Status Attach(v1::AttachRequest request, TensorTable* table, Canceller& canceller);
  // How the trainer's GPU memory is shared on this connection.
  GpuRegions& gpu() { return *gpu_; }
  absl::Status Detach(uint64_t generation, Canceller& canceller);
  // The pin's files, one a bucket. Touches nothing else of the connection.
  absl::StatusOr<std::vector<UniqueFd>> TakePin(const std::string& pin, size_t count) const {
    return door_->TakePin(pin, count);
  }
  // Ends the ring's thread: no buffer is touched by it after this.
  void StopRing();
  // "ring", "cuda_ipc", "cuda_vmm", or several of them; empty before Attach.
  const std::string& transport() const { return transport_; }
  // Ring commands so far that wrote parameters.
  uint64_t parameter_writes() const;

 private:
  Connection() = default;
  void ForgetGpu();

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Optimizer::Stub> stub_;
  v1::OpenResponse opened_;
  std::unique_ptr<DescriptorDoor> door_;
  std::unique_ptr<SessionKeeper> keeper_;
  std::unique_ptr<GpuRegions> gpu_;
  std::unique_ptr<RingExecutor> ring_;
  std::string transport_;
  uint64_t writes_of_former_rings_ = 0;
};

}  // namespace moment::client
