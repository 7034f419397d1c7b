#include "daemon/pipeline/node.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "daemon/pipeline/frame_pool.h"
#include "daemon/pipeline/io_scheduler.h"

namespace moment::pipeline {
namespace {

std::string Normal(absl::string_view path) {
  while (path.size() > 1 && absl::ConsumeSuffix(&path, "/")) {
  }
  return std::string(path);
}

class NodeImpl : public Node {
 public:
  NodeImpl(const NodeOptions& options, base::WorkerPool& workers)
      : options_(options),
        workers_(workers),
        frames_(options.host_memory_bytes, options.slab_bytes, options.devices) {}

  void AddStateDirectory(const std::string& path, io::IoEngine& engine) override {
    absl::MutexLock lock(&mutex_);
    auto& scheduler = by_engine_[&engine];
    if (scheduler == nullptr) {
      scheduler = std::make_unique<IoScheduler>(engine, options_.io_depth);
    }
    by_directory_[Normal(path)] = scheduler.get();
  }

  v1::PoolStatus PoolStatus() const override { return frames_.Status(); }

  uint64_t BytesRead(const std::string& state_directory) const override {
    const IoScheduler* scheduler = Find(state_directory);
    return scheduler == nullptr ? 0 : scheduler->bytes_read();
  }
  uint64_t BytesWritten(const std::string& state_directory) const override {
    const IoScheduler* scheduler = Find(state_directory);
    return scheduler == nullptr ? 0 : scheduler->bytes_written();
  }

  FramePool& frames() override { return frames_; }
  base::WorkerPool& workers() override { return workers_; }
  IoScheduler* SchedulerFor(const std::string& directory) override { return Find(directory); }

 private:
  IoScheduler* Find(const std::string& directory) const {
    const std::string path = Normal(directory);
    absl::MutexLock lock(&mutex_);
    IoScheduler* found = nullptr;
    size_t longest = 0;
    for (const auto& [root, scheduler] : by_directory_) {
      const bool below =
          path == root || root == "/" || absl::StartsWith(path, absl::StrCat(root, "/"));
      if (below && root.size() >= longest) {
        longest = root.size();
        found = scheduler;
      }
    }
    return found;
  }

  const NodeOptions options_;
  base::WorkerPool& workers_;
  FramePool frames_;
  mutable absl::Mutex mutex_;
  std::map<io::IoEngine*, std::unique_ptr<IoScheduler>> by_engine_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, IoScheduler*> by_directory_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<Node>> Node::Create(const NodeOptions& options,
                                                   base::WorkerPool& workers) {
  if (options.io_depth == 0) {
    return absl::InvalidArgumentError("io_depth is 0: set it to 1 or more");
  }
  return std::make_unique<NodeImpl>(options, workers);
}

}  // namespace moment::pipeline
