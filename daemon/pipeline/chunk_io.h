#pragma once

#include <cstdint>
#include <span>

#include "daemon/base/worker_pool.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/event_loop.h"
#include "daemon/pipeline/frame.h"
#include "daemon/pipeline/io_scheduler.h"
#include "daemon/pipeline/tensor_access.h"
#include "daemon/store/store.h"

namespace moment::pipeline {

// What a frame's bytes go through beside the device: read and verify, fill, write with checksums.
// Starts on the loop's thread; the work is done by the I/O engine and the worker pool; each
// start ends in one event on the loop. A frame is in one of these at a time.
class ChunkIo {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    // DATA_LOSS names the file and the offset.
    virtual void OnRead(Frame* frame, absl::Status status) = 0;
    virtual void OnFilled(Frame* frame) = 0;
    virtual void OnWritten(Frame* frame, absl::Status status) = 0;
  };

  ChunkIo(const ChunkPlan& plan, IoScheduler& scheduler, base::WorkerPool& workers, EventLoop& loop,
          Listener& listener);
  ~ChunkIo();  // nothing is under way

  // What of the frame's chunk is asked for, from this image, which outlives the read; no moments if
  // they are zero. Returns the bytes asked for: with 0 there is no read and no event.
  uint64_t Read(Frame* frame, store::BucketImage& image, const ChunkExtent& extent,
                IoClass io_class);

  struct FillOptions {
    const Frame* copy_from = nullptr;  // the chunk's bytes are copied from there first
    bool zero_moments = false;
    // By tensor: segments with Access::kZeros become zero. Outlives the filling.
    std::span<const TensorAccess> zeros;

    bool empty() const { return copy_from == nullptr && !zero_moments && zeros.empty(); }
  };
  // Writes to the frame what no device does.
  void Fill(Frame* frame, const FillOptions& options);

  // Zeroes the pads, computes the checksums and writes both into this image, which outlives the
  // write. A state that is replaced before it is written thus costs no checksums. Returns the bytes
  // of the write.
  uint64_t Write(Frame* frame, store::BucketImage& image, bool main_only, IoClass io_class);

  void Expedite(Frame* frame);
  void Cancel(Frame* frame);

 private:
  uint64_t Submit(Frame* frame, store::BucketImage& image, io::IoOp op, const ChunkExtent& extent,
                  IoClass io_class);
  void PostTask(Frame* frame, void (*run)(base::WorkerPool::Task*) noexcept);
  void PostResult(Frame* frame, void (*run)(Event*) noexcept);
  absl::Status Verify(Frame* frame) const;
  void FillBytes(Frame* frame) const;
  void ZeroSegments(Frame* frame) const;
  void ComputeChecksums(Frame* frame) const;
  void SubmitWrite(Frame* frame);
  static absl::Status RequestStatus(Frame* frame);
  static void OnRequestDone(IoRequest* request) noexcept;
  static void RunVerify(base::WorkerPool::Task* task) noexcept;
  static void RunFill(base::WorkerPool::Task* task) noexcept;
  static void RunChecksums(base::WorkerPool::Task* task) noexcept;
  static void OnReadEvent(Event* event) noexcept;
  static void OnFilledEvent(Event* event) noexcept;
  static void OnChecksumsEvent(Event* event) noexcept;
  static void OnWrittenEvent(Event* event) noexcept;

  const ChunkPlan& plan_;
  IoScheduler& scheduler_;
  base::WorkerPool& workers_;
  EventLoop& loop_;
  Listener& listener_;
  IoShare* share_;
};

}  // namespace moment::pipeline
