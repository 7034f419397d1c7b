#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "daemon/device/device.h"
#include "daemon/device/transport.h"
#include "daemon/pipeline/chunk_plan.h"
#include "daemon/pipeline/event_loop.h"
#include "daemon/pipeline/frame.h"
#include "daemon/pipeline/part_plan.h"

namespace moment::pipeline {

// What a pass asks of the device, the same for all its chunks. Owned by the pass.
struct PassWork {
  device::ChunkOp op = device::ChunkOp::kAdam;
  device::Profile profile = device::Profile::kTorchCpu;
  std::vector<uint8_t> participates;   // by tensor
  std::span<const uint32_t> group_of;  // by tensor; empty unless kAdam
  std::span<const uint64_t> t;         // by tensor, after the step; set by Pass
  std::span<const device::Hyperparameters> hyperparameters;
  // Gradients in memory of the device, by tensor; null, or none: they come through the transport.
  std::span<const std::byte* const> gradients;
  std::span<const TensorAccess> access;  // by tensor; empty unless kRead or kWrite
  uint64_t binding = 0;                  // of the buffers that `access` moves
};

// The way of parts through the transport's slots and the device: gradients, parameters or segment
// buffers in, arithmetic, parameters or segment buffers out. One lane a slot; each lane works on
// one part at a time. Belongs to the loop's thread.
class Lanes {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnPartComputed(uint32_t chunk, double device_seconds) = 0;
    // The trainer has the part's parameters, or the pass sends none. Comes after OnPartComputed.
    virtual void OnPartSent(uint32_t chunk) = 0;
    // No OnPartSent follows for this part.
    virtual void OnPartFailed(uint32_t chunk, const absl::Status& status) = 0;
  };

  struct PartWork {
    const PassWork* pass = nullptr;
    uint32_t chunk = 0;
    const Part* part = nullptr;
    Frame* in = nullptr;
    Frame* out = nullptr;  // may be `in`; ignored by kMaterialize
    bool moments_zero = false;
    bool fresh = false;  // `in` holds nothing of the state
  };

  Lanes(const ChunkPlan& plan, device::Device& device, EventLoop& loop, Listener& listener);
  ~Lanes();  // idle

  // Idle when called. Allocates what the lanes need for the whole attachment.
  void Bind(std::shared_ptr<device::Transport> transport, std::vector<TensorTypes> types,
            uint64_t max_runs_of_a_part, std::vector<std::byte*> parameters = {});
  void Unbind();
  bool bound() const { return transport_ != nullptr; }
  uint64_t slot_bytes() const { return transport_->slot_bytes(); }  // bound

  bool HasFree() const { return free_ != nullptr; }
  uint32_t busy() const { return busy_; }
  uint32_t computing() const { return computing_; }  // lanes whose part the device has
  void Start(const PartWork& work);

 private:
  struct Lane;

  void Build(Lane& lane);
  void AddRun(Lane& lane, const ChunkRun& run);
  void PlaceIn(Lane& lane, device::Run& run, uint64_t tensor_first, uint64_t* slot_offset);
  void PlaceOut(Lane& lane, device::Run& run, uint64_t tensor_first, uint64_t* slot_offset);
  void PlaceGradient(Lane& lane, device::Run& run, uint64_t tensor_first, uint64_t* slot_offset);
  void PlaceParameter(Lane& lane, device::Run& run, uint64_t tensor_first, uint64_t* slot_offset,
                      std::vector<device::TransportRun>& transfers);
  void PlaceBuffers(Lane& lane, device::Run& run, uint64_t tensor_first, uint64_t* slot_offset,
                    std::vector<device::TransportRun>& transfers);
  std::byte* Place(const Lane& lane, const device::Run& run, uint64_t tensor_first,
                   device::DataType type, uint64_t* slot_offset,
                   std::vector<device::TransportRun>& transfers);
  void Transfer(Lane& lane, device::TransportOp op, const std::vector<device::TransportRun>& runs);
  void Advance(Lane& lane);
  void Compute(Lane& lane);
  void Finish(Lane& lane);

  const ChunkPlan& plan_;
  device::Device& device_;
  EventLoop& loop_;
  Listener& listener_;
  std::shared_ptr<device::Transport> transport_;
  std::vector<TensorTypes> types_;
  std::vector<std::byte*> parameters_;  // in memory of the device, by tensor
  std::vector<std::unique_ptr<Lane>> lanes_;
  Lane* free_ = nullptr;
  uint32_t busy_ = 0;
  uint32_t computing_ = 0;
};

}  // namespace moment::pipeline
