#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/base/worker_pool.h"
#include "daemon/device/device.h"
#include "daemon/io/io_engine.h"
#include "moment/v1/admin.pb.h"

namespace moment::pipeline {

class FramePool;
class IoScheduler;

struct NodeOptions {
  uint64_t host_memory_bytes = uint64_t{1} << 30;  // budget of the frame pool, all stores together
  uint64_t slab_bytes = uint64_t{1} << 30;
  uint32_t io_depth = 16;  // transfers in flight per state directory
  // Those that the pool's memory is registered with; they outlive the node.
  std::vector<device::Device*> devices;
};

// What the stores of one process share. Thread-safe. Outlives its pipelines; the engines and the
// workers outlive it.
class Node {
 public:
  static absl::StatusOr<std::unique_ptr<Node>> Create(const NodeOptions& options,
                                                      base::WorkerPool& workers);
  virtual ~Node() = default;

  // One scheduler per engine (that is, per state directory); made at the first call for it.
  virtual void AddStateDirectory(const std::string& path, io::IoEngine& engine) = 0;

  virtual v1::PoolStatus PoolStatus() const = 0;
  // Bytes moved since the start, by state directory.
  virtual uint64_t BytesRead(const std::string& state_directory) const = 0;
  virtual uint64_t BytesWritten(const std::string& state_directory) const = 0;

  // For the pipelines.
  virtual FramePool& frames() = 0;
  virtual base::WorkerPool& workers() = 0;
  // The scheduler of the state directory that holds this directory; null if none does.
  virtual IoScheduler* SchedulerFor(const std::string& directory) = 0;
};

}  // namespace moment::pipeline
