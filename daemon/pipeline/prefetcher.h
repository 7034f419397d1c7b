#pragma once

#include <cstdint>

#include "daemon/pipeline/chunk_io.h"
#include "daemon/pipeline/frame_table.h"
#include "daemon/pipeline/write_back.h"

namespace moment::pipeline {

// Reads chunks of the applied state into frames: those a pass asks for, and between passes, behind
// the training, those the next step begins with. Belongs to the loop's thread.
class Prefetcher {
 public:
  Prefetcher(const ChunkPlan& plan, FrameTable& frames, ChunkIo& io, const WriteBack& write_back)
      : plan_(plan), frames_(frames), io_(io), write_back_(write_back) {}

  // From the first chunk on; the applied state, or what may stay in the pool, has changed.
  void Restart() {
    running_ = true;
    next_ = 0;
  }
  void Stop() { running_ = false; }

  // Starts as many reads as there are frames.
  void Continue();
  // Reads the chunk into this frame, which becomes its base.
  void Read(uint32_t chunk, Frame* frame, IoClass io_class);
  // Reads only this extent of it, for the pass under way. False if there is nothing to read: the
  // frame is clean at once.
  bool ReadExtent(uint32_t chunk, Frame* frame, const ChunkExtent& extent);

 private:
  store::BucketImage* Image(uint32_t chunk) const;

  const ChunkPlan& plan_;
  FrameTable& frames_;
  ChunkIo& io_;
  const WriteBack& write_back_;
  bool running_ = true;
  uint32_t next_ = 0;
};

}  // namespace moment::pipeline
