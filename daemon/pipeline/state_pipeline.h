#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/device/device.h"
#include "daemon/device/transport.h"
#include "daemon/pipeline/tensor_access.h"
#include "daemon/pipeline/tensor_digests.h"
#include "daemon/store/store.h"
#include "moment/v1/types.pb.h"

namespace moment::pipeline {

class Node;  // what all stores of the process share: frame pool, I/O schedulers, workers (node.h)

// The trainer's memory for the tensors of a store; set by Attach, cleared by Detach.
struct Bindings {
  std::shared_ptr<device::Transport> transport;
  std::vector<device::DataType> gradient_types;  // by tensor
  // Parameters in memory of the device, by tensor; null (or none at all): the transport serves it.
  std::vector<std::byte*> parameters;
};

inline constexpr uint32_t kSitsOut = UINT32_MAX;

struct StepParameters {
  uint64_t sequence = 0;
  std::string step_id;
  std::vector<device::Hyperparameters> hyperparameters;
  std::vector<uint32_t> group_of;  // by tensor: index into hyperparameters, or kSitsOut
  std::vector<v1::Group> groups;   // for the record
  std::string blob;
  // Gradients in memory of the device, by tensor, as Bindings::parameters.
  std::vector<const std::byte*> gradients;
  // Called on the pipeline's thread when the bucket's parameters are final.
  std::function<void(uint32_t bucket)> bucket_final;
};

struct Position {
  uint64_t sequence = 0;
  std::string step_id;
};

struct RefreshParameters {
  std::vector<bool> tensors;    // by tensor; empty: the whole store
  bool discard = false;         // whole store: zero moments and t
  uint64_t start_sequence = 0;  // whole store
  std::string blob;             // whole store
};

struct ReadParameters {
  std::vector<TensorAccess> tensors;  // by tensor
  uint64_t binding = 0;               // the trainer's number for the buffers
};

struct WriteParameters {
  std::vector<TensorAccess> tensors;  // by tensor
  uint64_t binding = 0;
  std::vector<std::pair<uint32_t, uint64_t>> t;  // tensor, t to set
};

struct PipelineOptions {
  uint64_t commit_every = 1;  // 0: on Flush alone
  device::Profile profile = device::Profile::kTorchCpu;
  uint64_t chunk_bytes = uint64_t{48} << 20;  // over all segments
};

struct PipelineStatus {
  std::string activity;  // "idle", "step", ...
  uint64_t applied_sequence = 0;
  uint64_t committed_sequence = 0;
  uint64_t state_bytes = 0;
  uint64_t resident_bytes = 0;
  uint64_t steps = 0;
  v1::StepStatistics last_step;
  std::string failure;  // why the store takes no more changes; empty if it does
};

// Streams the state of one store through the device: reads, Adam, write-back, commit, prefetch.
// Changing calls block their caller and run one at a time (the session sees to it); write-back,
// commit, prefetch and the store's sweeps go on behind them on the pipeline's own threads. Abort,
// Unpin and Status come from any thread.
//
// Step and Skip N are answered when the parameters are final and every due commit <= N - 1 is
// durable. A call that fails or is aborted leaves the last applied state intact.
class StatePipeline {
 public:
  // Grants the minimum frames; RESOURCE_EXHAUSTED naming the budget if they cannot be had.
  static absl::StatusOr<std::unique_ptr<StatePipeline>> Create(Node& node, device::Device& device,
                                                               std::unique_ptr<store::Store> store,
                                                               const PipelineOptions& options);
  virtual ~StatePipeline() = default;  // Drain first, or the last applied step may be lost

  virtual const store::Store& store() const = 0;
  // Where the store stands (applied, perhaps not committed yet); nullopt if it is empty.
  virtual std::optional<Position> applied() const = 0;
  virtual std::string applied_blob() const = 0;
  virtual std::vector<uint64_t> applied_t() const = 0;  // by tensor

  virtual void Attach(Bindings bindings) = 0;
  virtual void Detach() = 0;

  virtual absl::StatusOr<v1::StepStatistics> Step(const StepParameters& parameters) = 0;
  virtual absl::Status Skip(uint64_t sequence, const std::string& step_id,
                            const std::string& blob) = 0;
  // Commits the applied state, due. `sequence` must be its sequence.
  virtual absl::StatusOr<v1::CommitInfo> Flush(uint64_t sequence) = 0;
  virtual absl::StatusOr<v1::CommitInfo> Refresh(const RefreshParameters& parameters) = 0;
  virtual absl::Status Materialize(const std::vector<bool>& tensors) = 0;  // empty: all
  virtual absl::StatusOr<v1::CommitInfo> Rollback(uint64_t sequence) = 0;
  // Segments of the applied state -> buffers; nothing changes.
  virtual absl::Status Read(const ReadParameters& parameters) = 0;
  // Buffers or zeros -> segments, and t: one commit, due if that of the applied sequence was. What
  // is not listed is copied along.
  virtual absl::StatusOr<v1::CommitInfo> Write(const WriteParameters& parameters) = 0;
  // Of the applied state, by tensor. Needs no trainer's memory.
  virtual absl::StatusOr<std::vector<TensorDigest>> Digest(const std::vector<bool>& tensors) = 0;
  // Commits the applied state, due only if it is so anyway, and pins it.
  virtual absl::StatusOr<std::shared_ptr<const store::PinnedCommit>> Pin(
      const store::PinParameters& parameters) = 0;
  // Drops a pin; what it held is removed behind the caller. NOT_FOUND. From any thread.
  virtual absl::Status Unpin(const std::string& id) = 0;

  // Fails the running call with this status, soon; later calls are not affected. Safe at any time.
  virtual void Abort(absl::Status status) = 0;
  // Commits the last applied state (due only if it is so anyway) and waits for it; stops prefetch.
  // OK for an empty store.
  virtual absl::Status Drain() = 0;

  virtual PipelineStatus Status() const = 0;
};

}  // namespace moment::pipeline
