#pragma once

#include <grpcpp/server.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/types/optional.h"
#include "moment/v1/optimizer.grpc.pb.h"
#include "proto/moment/v1/descriptors.h"
#include "tests/client/fake_ring.h"

namespace moment::testing {

// What the fake holds of one store: fp32 arrays in memory, Adam in double. It outlives a daemon
// when a test hands it to the next one.
struct FakeStore {
  std::string uuid;
  std::vector<v1::Tensor> tensors;
  std::vector<std::vector<float>> main, exp_avg, exp_avg_sq;
  std::vector<uint64_t> t;
  bool empty = true;
  uint64_t id = 0;
  uint64_t sequence = 0;
  std::string step_id = std::string(16, '\0');
  std::string blob;
};

struct FakeDisk {
  std::map<std::string, FakeStore> stores;                  // as applied
  std::map<std::string, std::vector<FakeStore>> committed;  // newest last
};

// Where a test makes the daemon misbehave. Counters go down by one at each use.
struct FakeFaults {
  std::atomic<int> drop_step_before{0};  // UNAVAILABLE, and the session ends, before the step runs
  std::atomic<int> drop_step_after{0};   // ... after it was applied
  std::atomic<int> drop_refresh_after{0};
  std::atomic<int> drop_write_before{0};
  std::atomic<int> drop_write_after{0};
  std::atomic<int> fail_step{0};         // INTERNAL, before anything is written
  std::atomic<int> fail_step_midway{0};  // INTERNAL, after some parameters were written
  std::atomic<bool> hold_steps{false};   // steps wait until it is false, or are cancelled
  std::atomic<int> drop_pin_after{0};
  std::atomic<bool> hold_pins{false};  // pins wait until it is false, or are cancelled; then made
  std::atomic<int> pins_held{0};       // so far
  std::atomic<uint64_t> pin_bucket_elements{1'000'000};
};

// A test double of momentd: moment.v1.Optimizer, fd.sock and the ring over plain arrays. A step is
// committed when the next one is answered.
class FakeDaemon final : public v1::Optimizer::Service {
 public:
  // Serves at <directory>/momentd.sock. The disk outlives it.
  FakeDaemon(const std::string& directory, FakeDisk* disk);
  ~FakeDaemon() override;

  std::string socket() const { return directory_ + "/momentd.sock"; }
  FakeFaults& faults() { return faults_; }
  // What a kill -9 loses: every store goes back to its last commit.
  static void LoseUncommitted(FakeDisk* disk);

  std::vector<v1::OpenRequest> opens() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<v1::StepRequest> steps() const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<v1::WriteTensorRequest> writes() const ABSL_LOCKS_EXCLUDED(mutex_);
  int pidfds() const { return pidfds_; }
  size_t pins() const ABSL_LOCKS_EXCLUDED(mutex_);  // of live sessions
  void EndSessions(const std::string& reason) ABSL_LOCKS_EXCLUDED(mutex_);

  grpc::Status Open(grpc::ServerContext*, const v1::OpenRequest*, v1::OpenResponse*) override;
  grpc::Status Session(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::SessionEvent, v1::SessionRequest>* stream) override;
  grpc::Status Attach(grpc::ServerContext*, const v1::AttachRequest*, v1::AttachResponse*) override;
  grpc::Status Detach(grpc::ServerContext*, const v1::DetachRequest*, v1::DetachResponse*) override;
  grpc::Status Step(grpc::ServerContext*, const v1::StepRequest*,
                    grpc::ServerWriter<v1::StepResponse>*) override;
  grpc::Status Skip(grpc::ServerContext*, const v1::SkipRequest*, v1::SkipResponse*) override;
  grpc::Status Flush(grpc::ServerContext*, const v1::FlushRequest*, v1::FlushResponse*) override;
  grpc::Status Refresh(grpc::ServerContext*, const v1::RefreshRequest*,
                       v1::RefreshResponse*) override;
  grpc::Status Materialize(grpc::ServerContext*, const v1::MaterializeRequest*,
                           v1::MaterializeResponse*) override;
  grpc::Status Rollback(grpc::ServerContext*, const v1::RollbackRequest*,
                        v1::RollbackResponse*) override;
  grpc::Status Pin(grpc::ServerContext*, const v1::PinRequest*, v1::PinResponse*) override;
  grpc::Status Unpin(grpc::ServerContext*, const v1::UnpinRequest*, v1::UnpinResponse*) override;
  grpc::Status ReadTensor(grpc::ServerContext*, const v1::ReadTensorRequest*,
                          v1::ReadTensorResponse*) override;
  grpc::Status WriteTensor(grpc::ServerContext*, const v1::WriteTensorRequest*,
                           v1::WriteTensorResponse*) override;
  grpc::Status ResetMoments(grpc::ServerContext*, const v1::ResetMomentsRequest*,
                            v1::ResetMomentsResponse*) override;
  grpc::Status Digest(grpc::ServerContext*, const v1::DigestRequest*, v1::DigestResponse*) override;
  grpc::Status Close(grpc::ServerContext*, const v1::CloseRequest*, v1::CloseResponse*) override;

 private:
  struct Live {
    std::string store;
    std::string token;
    bool ended = false;
    std::string end_reason;
    uint64_t generation = 0;
    std::vector<v1::DataType> gradient_types;
    std::unique_ptr<FakeRing> ring;
    std::map<std::string, std::vector<client::UniqueFd>> pins;
    std::set<std::string> unpinned;  // ids, of pins that were not made yet too
  };

  // Waits while the test holds steps; false if the caller has given up.
  bool AwaitRelease(const grpc::ServerContext& context) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status Find(const std::string& session, Live** live, FakeStore** store)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status CheckOpen(const v1::OpenRequest& request, const std::string& key)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status Apply(const v1::StepRequest& request, Live& live, FakeStore& store)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  grpc::Status UpdateTensor(const v1::Hyperparameters& hyper, uint32_t tensor, Live& live,
                            FakeStore& store) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves a tensor's fp32 values to or from the trainer.
  bool Pull(v1::RingOp op, v1::DataType type, uint32_t tensor, Live& live, std::vector<float>& out)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Push(uint32_t tensor, Live& live, const FakeStore& store)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool PushAll(Live& live, const FakeStore& store) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves one segment of a tensor, fp32 on both sides.
  bool MoveSegment(v1::RingOp op, const std::string& segment, uint32_t tensor, uint64_t binding,
                   Live& live, FakeStore& store) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::CommitInfo Commit(const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(Live& live, const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ServeDescriptors();
  void AnswerDescriptors(int connection) ABSL_LOCKS_EXCLUDED(mutex_);
  // Copies of what a request takes; nullopt if there is nothing of the kind.
  absl::optional<std::vector<client::UniqueFd>> Taken(const v1::DescriptorRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string directory_;
  FakeFaults faults_;
  std::atomic<int> pidfds_{0};
  std::atomic<bool> stopping_{false};
  mutable absl::Mutex mutex_;
  FakeDisk* const disk_;
  std::map<std::string, std::unique_ptr<Live>> sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::OpenRequest> opens_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::StepRequest> steps_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::WriteTensorRequest> writes_ ABSL_GUARDED_BY(mutex_);
  client::UniqueFd door_;
  std::thread door_thread_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace moment::testing
