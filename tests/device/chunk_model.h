#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "daemon/device/device.h"
#include "tests/device/device_under_test.h"

namespace moment::device {

// What a chunk and the trainer's memory for it hold.
struct ChunkBytes {
  std::vector<std::byte> segments[kSegmentCount];
  std::vector<std::vector<std::byte>> gradients;   // by run
  std::vector<std::vector<std::byte>> parameters;  // by run
  // By run, of kRead and kWrite; those that the shape does not ask for are left alone.
  std::vector<std::array<std::vector<std::byte>, kSegmentCount>> buffers;

  friend bool operator==(const ChunkBytes&, const ChunkBytes&) = default;
};

struct ChunkShape {
  uint64_t elements = 0;
  DataType types[kSegmentCount] = {};
  std::vector<Run> runs;
  std::vector<std::array<bool, kSegmentCount>> asks_for;  // by run: has a buffer of the segment
  std::vector<Hyperparameters> hyperparameters;
};

// Runs of random sizes up to `largest_run`, with gaps, empty runs, all types and steps, some of
// which sit out; finite contents.
ChunkShape RandomShape(std::mt19937_64& random, uint64_t elements, uint64_t largest_run);
ChunkBytes RandomBytes(std::mt19937_64& random, const ChunkShape& shape);

// Computes `op` element by element by the device's plain definition. A kRefresh keeps mains that
// round to their parameter unless `mains_fresh`.
ChunkBytes Expected(const DeviceUnderTest& device, const ChunkShape& shape, ChunkOp op,
                    bool moments_zero, const ChunkBytes& before, bool mains_fresh = false);

// One chunk on its way through a device.
class ChunkCall {
 public:
  // Works in place on `bytes`, or from `in` to `bytes`; these and `shape` outlive the call.
  ChunkCall(const ChunkShape& shape, Profile profile, ChunkOp op, ChunkBytes& bytes,
            ChunkBytes* in = nullptr);
  ChunkCall(const ChunkCall&) = delete;
  ChunkCall& operator=(const ChunkCall&) = delete;

  absl::Status Wait();
  int times_done() const { return times_done_; }

  std::vector<Run> runs;
  ChunkWork work;

 private:
  static void Done(ChunkWork* work, absl::Status status) noexcept;

  absl::Mutex mutex_;
  bool done_ = false;
  int times_done_ = 0;
  absl::Status status_;
};

}  // namespace moment::device
