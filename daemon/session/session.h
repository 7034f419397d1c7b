#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "daemon/pipeline/state_pipeline.h"
#include "daemon/session/executor.h"
#include "daemon/session/imports.h"
#include "daemon/session/operation.h"
#include "daemon/session/peer.h"
#include "daemon/session/peer_watch.h"
#include "daemon/session/ring.h"
#include "daemon/session/step_ledger.h"
#include "daemon/session/trainer_memory.h"
#include "moment/v1/admin.pb.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

using Clock = std::chrono::steady_clock;

struct SessionOptions {
  std::string id;
  std::string token;  // 16 bytes
  v1::StoreName name;
  std::string device;
  std::string program;  // what the trainer calls itself
  Peer peer;
  std::chrono::milliseconds lease{30000};
  uint64_t blob_limit_bytes = 0;
  // Existing state that the first Refresh must discard (RESUME_NEVER).
  bool must_discard = false;
  MakeRing make_ring;
  device::MemoryImporter* importer = nullptr;  // of the device, which outlives the session
  PeerWatch* peers = nullptr;                  // outlives the session
  // Runs once, on the session's executor, when the store is committed and closed.
  std::function<void(const absl::Status& committed)> gone;
};

// A live attachment of one trainer process to one store. Changing calls run one at a time on its
// executor thread, which alone touches the pipeline (but for Abort and Status); they go on when
// their caller's connection breaks, and a repetition joins them. Thread-safe.
//
// It ends once: by Close, the trainer's pidfd, the end of its stream, its lease, a takeover or the
// daemon's stop. Then the running call is aborted, the ring closed, the last applied step
// committed, the store closed, and `gone` called. Calls after the end are refused with its reason.
class Session : public std::enable_shared_from_this<Session> {
 public:
  static std::shared_ptr<Session> Create(SessionOptions options,
                                         std::unique_ptr<pipeline::StatePipeline> pipeline);
  ~Session();  // not on its executor

  const std::string& id() const { return options_.id; }
  const std::string& token() const { return options_.token; }
  const v1::StoreName& name() const { return options_.name; }
  pid_t pid() const { return options_.peer.pid; }
  uid_t uid() const { return options_.peer.uid; }

  // Fills in what Open answers of the store.
  void Describe(v1::OpenResponse& response) const;
  v1::SessionStatus Status() const;

  absl::StatusOr<v1::AttachResponse> Attach(const v1::AttachRequest& request);
  absl::Status Detach(const v1::DetachRequest& request);
  absl::StatusOr<std::shared_ptr<Operation>> Step(const v1::StepRequest& request);
  absl::StatusOr<v1::SkipResponse> Skip(const v1::SkipRequest& request);
  absl::StatusOr<v1::FlushResponse> Flush(const v1::FlushRequest& request);
  absl::StatusOr<v1::RefreshResponse> Refresh(const v1::RefreshRequest& request);
  absl::StatusOr<v1::MaterializeResponse> Materialize(const v1::MaterializeRequest& request);
  absl::StatusOr<v1::RollbackResponse> Rollback(const v1::RollbackRequest& request);
  absl::StatusOr<v1::ReadTensorResponse> ReadTensor(const v1::ReadTensorRequest& request);
  absl::StatusOr<v1::WriteTensorResponse> WriteTensor(const v1::WriteTensorRequest& request);
  absl::StatusOr<v1::ResetMomentsResponse> ResetMoments(const v1::ResetMomentsRequest& request);
  absl::StatusOr<v1::DigestResponse> Digest(const v1::DigestRequest& request);
  absl::StatusOr<v1::PinResponse> Pin(const v1::PinRequest& request);
  // Does not wait for the running call. OK if there is no such pin.
  absl::Status Unpin(const v1::UnpinRequest& request);
  // The same for an operator: NOT_FOUND if there is no such pin. Returns the bytes that only pins
  // held.
  absl::StatusOr<uint64_t> DropPin(const std::string& id);
  absl::StatusOr<v1::Operation> GetOperation(const std::string& operation) const;
  absl::StatusOr<v1::CloseResponse> Close();

  // Runs `work` as the one changing call: live files do not change under it.
  absl::Status RunAlone(const std::string& kind, const std::function<absl::Status()>& work);

  // BucketFinal of a bucket of the layout.
  v1::BucketFinal DescribeBucket(uint32_t bucket) const;

  // What fd.sock carries.
  absl::StatusOr<std::vector<base::UniqueFd>> RingDescriptors();
  // Files of the pin's buckets from `first` on, at most `count`.
  absl::StatusOr<std::vector<base::UniqueFd>> PinDescriptors(const std::string& id, uint32_t first,
                                                             uint32_t count) const;
  absl::Status OfferPidfd(base::UniqueFd pidfd);
  absl::StatusOr<uint32_t> OfferFiles(std::vector<base::UniqueFd> files);
  // Of GPU memory, for the next Attach or Step. Returns the number of the first.
  absl::StatusOr<uint32_t> OfferMemory(std::vector<base::UniqueFd> chunks);

  // The trainer's stream: `ended` runs once, when the session ends. ALREADY_EXISTS for a second.
  absl::Status AttachStream(std::function<void(const absl::Status& reason)> ended);
  // FAILED_PRECONDITION if it has ended.
  absl::Status Renew();
  bool LeaseExpired(Clock::time_point at) const;
  bool PeerHasEnded() const;

  // Refuses new calls from here on.
  void Quiesce();
  // Waits for the running call, at most until `deadline`.
  void AwaitIdle(Clock::time_point deadline) const;
  // Returns at once; `gone` follows.
  void End(const absl::Status& reason);
  bool ended() const;
  // What calls are refused with after the end; OK before it.
  absl::Status EndReason() const;

 private:
  using Job = std::function<void(pipeline::StatePipeline& pipeline, Operation& operation)>;

  explicit Session(SessionOptions options, std::unique_ptr<pipeline::StatePipeline> pipeline);

  // Waits until no other changing call runs; the session's end or its quiescing is an error.
  absl::Status AwaitTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckAlive() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckBlob(absl::string_view call, const std::string& blob) const;
  absl::Status CheckAttached(absl::string_view call) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // The store has state that this session did not promise to discard.
  absl::Status CheckHasState(absl::string_view call) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRefresh(const v1::RefreshRequest& request) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  // State, and the trainer's memory if buffers move.
  absl::Status CheckTensors(absl::string_view call, bool moves_buffers) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckMaterialize() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRollback() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // Runs `job` on the executor as the one changing call, after AwaitTurn.
  void Start(std::shared_ptr<Operation> operation, Job job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RunJob(const std::shared_ptr<Operation>& operation, const Job& job);
  // Starts an operation that has an id, or joins it; waits for its end.
  absl::StatusOr<v1::Operation> RunOperation(const std::string& id, const std::string& kind,
                                             const std::function<absl::Status()>& check, Job job);
  // Starts or joins a Step or Skip.
  absl::StatusOr<std::shared_ptr<Operation>> Arrive(const StepLedger::Arrival& arrival, Job run);

  // On the executor.
  absl::StatusOr<v1::StepStatistics> TryStep(pipeline::StatePipeline& pipeline,
                                             const v1::StepRequest& request,
                                             pipeline::StepParameters& step);
  void Replay(pipeline::StatePipeline& pipeline, Operation& operation);
  void FinishStep(Operation& operation, const absl::Status& status, v1::StepDone done);
  // Takes over where the store stands after a change between two steps.
  void Restand(const pipeline::StatePipeline& pipeline);
  absl::StatusOr<v1::Operation> MakePin(pipeline::StatePipeline& pipeline, const std::string& id);
  absl::StatusOr<v1::PinResponse> DescribePin(const std::string& id) const;
  void DropAllPins();
  void CloseMemory();
  void Finalize();

  absl::StatusOr<base::UniqueFd> TakeMemory(uint32_t number) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Imports::TakeDescriptor MemoryTaker() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void WatchPeer(std::shared_ptr<base::UniqueFd> pidfd);
  void RenewLease() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SessionOptions options_;
  const std::shared_ptr<const store::Layout> layout_;
  const Clock::time_point opened_;

  mutable absl::Mutex mutex_;
  // Used by the executor without the mutex; replaced by null under it, when the session is over.
  std::unique_ptr<pipeline::StatePipeline> pipeline_;
  absl::optional<absl::Status> ended_ ABSL_GUARDED_BY(mutex_);
  bool quiescing_ ABSL_GUARDED_BY(mutex_) = false;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool must_discard_ ABSL_GUARDED_BY(mutex_);
  bool empty_ ABSL_GUARDED_BY(mutex_);
  StepLedger ledger_ ABSL_GUARDED_BY(mutex_);
  v1::StepDone last_done_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<Operation> running_step_ ABSL_GUARDED_BY(mutex_);
  OperationTable operations_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> abandoned_pins_ ABSL_GUARDED_BY(mutex_);  // whose Pin is under way
  Imports imports_ ABSL_GUARDED_BY(mutex_);
  absl::optional<TrainerMemory> memory_ ABSL_GUARDED_BY(mutex_);  // as long as it is attached
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;               // of the last Attach
  std::unique_ptr<Ring> ring_ ABSL_GUARDED_BY(mutex_);
  Clock::time_point lease_ends_ ABSL_GUARDED_BY(mutex_);
  std::function<void(const absl::Status&)> stream_ended_ ABSL_GUARDED_BY(mutex_);
  bool stream_attached_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<base::UniqueFd> pidfd_ ABSL_GUARDED_BY(mutex_);
  uint64_t watch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<base::UniqueFd> files_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, base::UniqueFd> offered_memory_ ABSL_GUARDED_BY(mutex_);  // not taken yet
  uint32_t next_memory_ ABSL_GUARDED_BY(mutex_) = 0;

  Executor executor_;  // last: its thread ends before the rest does
};

}  // namespace moment::session
