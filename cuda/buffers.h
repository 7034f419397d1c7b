#pragma once

#include "daemon/device/device.h"

namespace moment::cuda {

// Memory of the trainer's that an operation works on beside the gradient, and its segment: the
// parameter with the mains, or what kRead and kWrite name.
struct Buffer {
  void* data = nullptr;
  device::DataType type = device::DataType::kFloat32;
  device::Place place = device::Place::kHost;
  int segment = device::kMain;
};

// Calls `use` with each buffer of a run; with none of a run that sits out.
template <typename Use>
void ForEachBuffer(const device::ChunkWork& work, const device::Run& run, const Use& use) {
  if (!run.participates || run.count == 0) {
    return;
  }
  if (work.op != device::ChunkOp::kRead && work.op != device::ChunkOp::kWrite) {
    use(Buffer{run.parameter, run.parameter_type, run.parameter_place, device::kMain});
    return;
  }
  for (int segment = 0; segment < device::kSegmentCount; ++segment) {
    if (run.buffers[segment] != nullptr) {
      use(Buffer{run.buffers[segment], run.buffer_types[segment], device::Place::kHost, segment});
    }
  }
}

}  // namespace moment::cuda
