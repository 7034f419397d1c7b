#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/base/memory.h"
#include "daemon/device/device.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/io_scheduler.h"
#include "daemon/store/store.h"

namespace moment::bench {

// What a step of this state costs without the pipeline: its bytes alone, at the rate of the disk,
// and the plain order read, compute, write. Reads the files of a committed state; writes to files
// of the same lengths beside them, whose blocks were written before.
class DiskLimits {
 public:
  struct Options {
    io::FileSystem* files = nullptr;
    io::IoEngine* engine = nullptr;
    device::Device* device = nullptr;
    std::string directory;  // for the files it writes
    bool direct_io = false;
    uint32_t io_depth = 16;
    uint64_t chunk_bytes = 0;
    uint32_t buffers = 6;  // chunks on their way at a time
  };

  static absl::StatusOr<std::unique_ptr<DiskLimits>> Create(const Options& options,
                                                            const store::Layout& layout);
  ~DiskLimits();

  // Every byte of the state once read and once written, many chunks at a time, then synced.
  absl::StatusOr<double> RawSeconds(const store::State& state);
  // One chunk after the other: read, Adam, write; then synced.
  absl::StatusOr<double> SerialSeconds(const store::State& state,
                                       std::span<const std::byte> gradients,
                                       std::span<std::byte> parameters);
  uint64_t state_bytes() const { return plan_.state_bytes(); }

 private:
  struct Buffer;
  class Finished;

  DiskLimits(const Options& options, const store::Layout& layout);
  absl::Status Prepare(const store::Layout& layout);
  void Submit(Buffer& buffer, io::IoOp op, const store::State& state);
  absl::Status MoveAndWait(Buffer& buffer, io::IoOp op, const store::State& state);
  absl::Status Compute(Buffer& buffer, std::span<const std::byte> gradients,
                       std::span<std::byte> parameters);
  absl::Status SyncAll();

  const Options options_;
  const pipeline::ChunkPlan plan_;
  std::unique_ptr<Finished> finished_;
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::vector<std::unique_ptr<io::File>> targets_;  // by bucket
  pipeline::IoScheduler scheduler_;
  pipeline::IoShare* share_;
};

}  // namespace moment::bench
