#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "client/include/moment/moment.h"
#include "client/src/canceller.h"
#include "client/src/connection.h"
#include "client/src/pin.h"
#include "client/src/position.h"
#include "client/src/process.h"
#include "client/src/requests.h"
#include "client/src/tensor_map.h"
#include "client/src/tensor_table.h"

namespace moment::client {

// Where the client stands towards its store.
struct Standing {
  Position answered;                   // the last answered step
  absl::optional<Position> in_flight;  // a step sent and not answered
  bool empty = true;                   // Refresh the whole store first
  bool must_discard = false;           // ... with discard: opened with RESUME_NEVER over a state
  bool stale = false;                  // parameters are not those of `answered`
  size_t stale_tensors = 0;            // whose mains were written since
  bool rewound = false;
  bool changing = false;  // a Refresh or Rollback is in flight: any position may be found
  uint64_t reconnects = 0;
  std::string operation;  // id of the last long call
};

// One open store: the session, the chain of step ids, the reconnects. Calls that change something
// run one at a time, on their caller's thread; the rest never waits for them. In a forked child
// every call returns ForkedError.
class StoreClient {
 public:
  static absl::StatusOr<std::unique_ptr<StoreClient>> Open(const moment_open_options& options);
  // Closes the session if it is still open.
  ~StoreClient();

  bool mine() const { return owner_.mine(); }
  absl::Status Close();

  absl::Status Attach(absl::Span<void* const> parameters);
  absl::Status Detach();
  absl::StatusOr<v1::StepDone> Step(const moment_step_options& options);
  absl::StatusOr<uint64_t> Skip(const std::string& blob);
  absl::StatusOr<v1::CommitInfo> Flush();
  absl::StatusOr<v1::CommitInfo> Refresh(absl::Span<const moment_run> runs);
  absl::StatusOr<v1::CommitInfo> RefreshAll(bool discard, uint64_t start_sequence,
                                            const std::string& blob);
  absl::Status Materialize(absl::Span<const moment_run> runs);
  absl::StatusOr<v1::CommitInfo> Rollback(uint64_t sequence);
  // `t`, if not null: of each buffer's tensor.
  absl::Status ReadTensors(absl::Span<const moment_buffer> buffers, uint64_t* t);
  absl::StatusOr<v1::CommitInfo> WriteTensors(const moment_write_options& options);
  absl::StatusOr<v1::CommitInfo> ResetMoments(
      absl::optional<absl::Span<const moment_run>> runs);  // nullopt: all
  absl::StatusOr<std::vector<moment_tensor_digest>> Digest(
      absl::optional<absl::Span<const moment_run>> runs);
  absl::StatusOr<std::vector<uint64_t>> Steps();  // by caller's index
  absl::StatusOr<std::unique_ptr<Pin>> CreatePin();

  // From any thread, while another one is in a call.
  absl::StatusOr<v1::Operation> GetOperation(const std::string& id) const;
  void Cancel() { canceller_.Cancel(); }
  Standing standing() const ABSL_LOCKS_EXCLUDED(state_mutex_);
  // What the last Open or Rollback answered; its blob is that of the step the store stands at.
  v1::OpenResponse opened() const ABSL_LOCKS_EXCLUDED(state_mutex_);
  std::string transport() const ABSL_LOCKS_EXCLUDED(state_mutex_);
  std::vector<uint32_t> added() const;

 private:
  using Rpc = std::function<absl::Status(Connection& connection, grpc::ClientContext* context)>;

  StoreClient(std::string socket_path, v1::OpenRequest request);

  absl::Status FirstOpen(const moment_open_options& options);
  void AdoptOpened() ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);

  // Runs an RPC of the session; a lost daemon is waited for and the RPC sent again.
  absl::Status Call(const Rpc& rpc) ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status CallUntil(const Rpc& rpc, absl::Time deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // The call failed because daemon or session is gone, not because of what it asked.
  bool Lost(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status Reconnect(absl::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status TryReconnect(absl::Duration connect_timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  v1::OpenRequest ReconnectRequest() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::StatusOr<Comparison> CheckReopened(const v1::OpenResponse& opened)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // The daemon has the parameters where they are now: on a GPU the allocator may have put other
  // memory at their addresses.
  absl::Status AttachMoved() ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status ShareGradients(Connection& connection, const std::vector<Buffer>& gradients,
                              v1::StepRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Parameters that the daemon writes itself, of which no ring's thread learns, may be written.
  bool MayHaveWritten(const absl::Status& status) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status AttachHere() ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);

  absl::Status CheckCanStep(bool resend) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status CheckCanChange(absl::string_view call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Gives the step its sequence and ids and puts it in flight.
  template <typename Request>
  void Launch(bool resend, Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // The step in flight was answered, or failed for good.
  void Land(const absl::Status& status, bool parameters_written)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status UseGradientTypes(const std::vector<moment_type>& types)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status StreamStep(Connection& connection, grpc::ClientContext* context,
                          const v1::StepRequest& request, const moment_step_options& options,
                          v1::StepDone* done);
  absl::Status CheckHasState(absl::string_view call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // The store is at an answered step, so that it can be changed.
  absl::Status CheckSettled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::StatusOr<v1::ReadTensorResponse> CallRead(v1::ReadTensorRequest request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Parameters of the marked tensors are, or are no longer, those of the store.
  void SetStale(const std::vector<bool>& marked, bool stale)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  void GiveUpPin(const std::string& id) ABSL_LOCKS_EXCLUDED(state_mutex_);
  std::string NewOperation() ABSL_LOCKS_EXCLUDED(state_mutex_);
  template <typename Change>
  void Restand(Change change) ABSL_LOCKS_EXCLUDED(state_mutex_) {
    absl::MutexLock lock(&state_mutex_);
    change(standing_);
  }
  void StandAt(const v1::CommitInfo& commit) ABSL_LOCKS_EXCLUDED(state_mutex_);
  uint64_t ParameterWrites() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);

  const ProcessOwner owner_;
  const std::string socket_path_;
  v1::OpenRequest request_;  // as the trainer gave it
  absl::Duration retry_for_ = absl::Minutes(5);
  TensorMap tensors_;
  std::string store_uuid_;
  std::unique_ptr<TensorTable> table_;
  Canceller canceller_;

  absl::Mutex call_mutex_ ABSL_ACQUIRED_BEFORE(state_mutex_);
  bool attached_ ABSL_GUARDED_BY(call_mutex_) = false;
  uint64_t generation_ ABSL_GUARDED_BY(call_mutex_) = 0;
  std::vector<Buffer> parameters_ ABSL_GUARDED_BY(call_mutex_);           // by store index
  SharedBuffers shared_ ABSL_GUARDED_BY(call_mutex_);                     // of the last Attach
  bool on_gpu_ ABSL_GUARDED_BY(call_mutex_) = false;                      // a parameter is
  std::vector<moment_type> gradient_types_ ABSL_GUARDED_BY(call_mutex_);  // of the last Attach
  bool closed_ ABSL_GUARDED_BY(call_mutex_) = false;
  std::string lost_session_ ABSL_GUARDED_BY(call_mutex_);  // ours, before the reconnect under way
  uint64_t lost_writes_ ABSL_GUARDED_BY(call_mutex_) = 0;  // parameter writes of lost connections
  uint64_t binding_ ABSL_GUARDED_BY(call_mutex_) = 0;      // of the last read or write
  std::vector<bool> stale_ ABSL_GUARDED_BY(call_mutex_);   // see Standing::stale_tensors

  mutable absl::Mutex state_mutex_;
  Standing standing_ ABSL_GUARDED_BY(state_mutex_);
  v1::OpenResponse opened_ ABSL_GUARDED_BY(state_mutex_);
  std::string blob_in_flight_ ABSL_GUARDED_BY(state_mutex_);
  // Written under both mutexes; null while a reconnect is under way.
  std::shared_ptr<Connection> connection_ ABSL_GUARDED_BY(state_mutex_);
};

}  // namespace moment::client
