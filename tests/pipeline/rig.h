#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/base/worker_pool.h"
#include "daemon/device/host_device.h"
#include "daemon/io/simulated_disk.h"
#include "daemon/pipeline/node.h"
#include "daemon/pipeline/state_pipeline.h"
#include "daemon/store/store.h"
#include "tests/pipeline/memory_trainer.h"
#include "tests/pipeline/reference.h"

namespace moment::pipeline {

struct RigOptions {
  std::vector<uint64_t> sizes = {300'000, 7, 1, 0, 262'144, 500'001};
  ModelTypes types;
  uint64_t bucket_elements = store::kMaxBucketElements;
  uint64_t commit_every = 1;
  uint64_t chunk_bytes = uint64_t{3} << 20;
  uint64_t host_memory_bytes = uint64_t{64} << 20;
  std::string job = "job";
  MemoryTrainer::Options trainer;
};

// A node, stores on a disk and trainers, in one process: what the daemon and a training job do,
// without the RPCs between them.
class Machine {
 public:
  explicit Machine(io::SimulatedDisk& disk, const RigOptions& options,
                   io::IoEngine* engine = nullptr);
  ~Machine();

  io::SimulatedDisk& disk;
  io::IoEngine& engine;  // the disk's, or one over it
  base::WorkerPool workers;
  device::HostDevice device;
  std::unique_ptr<Node> node;
};

// One store with its trainer and the reference it is held against.
class Rig {
 public:
  Rig(Machine& machine, const RigOptions& options);

  // Opens the store and its pipeline, with what is on the disk.
  absl::Status Open();
  void Close() { pipeline.reset(); }
  void Attach();
  // Fills the trainer's parameters from the seed, and the store and the reference from them.
  absl::Status Fill(uint64_t seed = 1);

  StepParameters MakeStep(uint64_t sequence) const;
  // Gradients of `sequence`, one step of the pipeline, and the same of the reference if it is OK.
  absl::StatusOr<v1::StepStatistics> Step(uint64_t sequence);
  void SetGradients(uint64_t sequence);

  // Closes the store, as it is, and opens it again; `reference` becomes what `history` says of the
  // recovered sequence.
  absl::Status Reopen();
  uint64_t sequence() const { return pipeline->applied()->sequence; }

  // The first difference between trainer's parameters and reference; empty if none.
  std::string ParametersDiffer() const;
  // The same for every segment of a committed state, read from the files.
  std::string StateDiffers(const store::State& state) const;
  std::string FilesDiffer() const;  // of the newest commit
  std::string BucketPath(size_t bucket) const;

  Machine& machine;
  RigOptions options;
  std::vector<size_t> sits_out;           // tensors, in the steps from here on
  std::map<uint64_t, Reference> history;  // by sequence
  std::shared_ptr<MemoryTrainer> trainer;
  Reference reference;
  std::unique_ptr<StatePipeline> pipeline;
};

std::string StepId(uint64_t sequence);

}  // namespace moment::pipeline
