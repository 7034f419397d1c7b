#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"

namespace moment::client {

// The trainer's memory of one tensor; no bytes if it has none.
struct Buffer {
  std::byte* data = nullptr;
  uint64_t length_bytes = 0;
  int gpu = -1;  // the GPU it lies on, as this process counts them; -1: the host
};

// The trainer's buffer of one segment of a tensor, while it is read or written.
struct SegmentBuffer {
  uint32_t tensor = 0;   // store index
  uint32_t segment = 0;  // v1::RingSegment
  Buffer buffer;
};

// Pointer and length of every tensor's parameter, of its gradient while a step runs, and of the
// segments that a call reads or writes; by store index. The one place where the ring's bounds are
// checked against. Thread-safe: the trainer's thread binds, the ring's thread copies; a bind waits
// for a copy in progress, so that after Clear the old memory is not touched.
class TensorTable {
 public:
  enum class Kind { kParameter, kGradient };

  explicit TensorTable(size_t tensors);

  void BindParameters(std::vector<Buffer> buffers, uint64_t generation) ABSL_LOCKS_EXCLUDED(mutex_);
  void BindGradients(std::vector<Buffer> buffers) ABSL_LOCKS_EXCLUDED(mutex_);
  // Of one call, under its own number: the ring's commands of other calls do not find them.
  void BindSegments(const std::vector<SegmentBuffer>& buffers, uint64_t binding)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void ClearParameters() ABSL_LOCKS_EXCLUDED(mutex_);
  void ClearGradients() ABSL_LOCKS_EXCLUDED(mutex_);
  void ClearSegments() ABSL_LOCKS_EXCLUDED(mutex_);
  void SetGeneration(uint64_t generation) ABSL_LOCKS_EXCLUDED(mutex_);

  // For the ring's thread: hold the mutex over a whole command.
  absl::Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  uint64_t generation() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return generation_; }
  // Bytes [offset, offset + length) of the buffer; without data if it has no such bytes.
  Buffer Find(Kind kind, uint32_t tensor, uint64_t offset_bytes, uint64_t length_bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Buffer FindSegment(uint64_t binding, uint32_t tensor, uint32_t segment, uint64_t offset_bytes,
                     uint64_t length_bytes) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  static Buffer Within(const Buffer& buffer, uint64_t offset_bytes, uint64_t length_bytes);

  mutable absl::Mutex mutex_;
  const size_t tensors_;
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Buffer> parameters_ ABSL_GUARDED_BY(mutex_);
  std::vector<Buffer> gradients_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::pair<uint32_t, uint32_t>, Buffer> segments_ ABSL_GUARDED_BY(mutex_);
  uint64_t binding_ ABSL_GUARDED_BY(mutex_) = 0;  // of segments_
};

}  // namespace moment::client
