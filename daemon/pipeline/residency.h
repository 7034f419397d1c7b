#pragma once

#include <algorithm>
#include <cstdint>

namespace moment::pipeline {

// Frames through which the chunks that do not stay in the pool stream: enough for some to be read,
// some to be computed and some to be written at a time.
inline constexpr uint32_t kWindowFrames = 6;
// Two a device slot, and two slots to overlap.
inline constexpr uint32_t kMinimumFrames = 4;

// Which chunks stay in the pool between steps. Static: a step scans the chunks in a fixed order, so
// no other choice of the same size hits more.
struct Residency {
  uint32_t resident = 0;  // chunks 0 .. resident - 1
  uint32_t window = 0;    // frames for the others

  bool Keeps(uint32_t chunk) const { return chunk < resident; }
  // Read ahead for the next step, behind the training.
  bool Prefetches(uint32_t chunk) const { return chunk < resident + window; }
};

// `frames_each`: 1 where a chunk is written back before the next step updates it in place; 2 where
// the applied state must outlive the next step in memory.
inline Residency PlanResidency(uint32_t frames, uint32_t chunks, uint32_t frames_each) {
  Residency residency;
  if (uint64_t{chunks} * frames_each <= frames && frames_each > 1) {
    residency.resident = chunks;  // there is always a free frame for a result
    return residency;
  }
  residency.window = std::min(frames, std::min<uint32_t>(kWindowFrames, chunks));
  residency.resident = std::min(chunks, (frames - residency.window) / frames_each);
  return residency;
}

inline uint32_t MinimumFrames(uint32_t chunks) { return std::min(kMinimumFrames, 2 * chunks); }

inline uint32_t WantedFrames(uint32_t chunks, uint32_t frames_each) {
  return frames_each > 1 ? chunks * frames_each
                         : chunks + std::min<uint32_t>(kWindowFrames, chunks);
}

}  // namespace moment::pipeline
