#pragma once

#include <cstdint>

#include "daemon/base/worker_pool.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/event_loop.h"
#include "daemon/pipeline/frame.h"
#include "daemon/pipeline/lanes.h"
#include "daemon/pipeline/tensor_digests.h"

namespace moment::pipeline {

// Digests chunks on the worker pool, one at a time and so in the order in which they are started.
// Reports each like a part that was computed and sent. Belongs to the loop's thread.
class Digester {
 public:
  Digester(const ChunkPlan& plan, base::WorkerPool& workers, EventLoop& loop,
           Lanes::Listener& listener);

  bool busy() const { return frame_ != nullptr; }
  // Not while it is busy. The frame keeps its bytes, and `digests` lives, until the report.
  void Start(TensorDigests& digests, const Frame& frame);

 private:
  struct Task : base::WorkerPool::Task {
    Digester* digester = nullptr;
  };

  static void RunTask(base::WorkerPool::Task* task) noexcept;
  static void OnEvent(Event* event) noexcept;

  const ChunkPlan& plan_;
  base::WorkerPool& workers_;
  EventLoop& loop_;
  Lanes::Listener& listener_;
  TensorDigests* digests_ = nullptr;
  const Frame* frame_ = nullptr;
  Task task_;
  Event event_;
};

}  // namespace moment::pipeline
