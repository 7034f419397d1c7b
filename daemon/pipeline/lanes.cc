#include "daemon/pipeline/lanes.h"

#include <algorithm>
#include <utility>

#include "daemon/base/memory.h"

namespace moment::pipeline {

enum class Stage : uint8_t { kIn, kDevice, kOut };

namespace {

device::TransportOp InOp(device::ChunkOp op) {
  switch (op) {
    case device::ChunkOp::kAdam:
      return device::TransportOp::kGradientsIn;
    case device::ChunkOp::kWrite:
      return device::TransportOp::kSegmentsIn;
    default:
      return device::TransportOp::kParametersIn;
  }
}

device::TransportOp OutOp(device::ChunkOp op) {
  return op == device::ChunkOp::kRead ? device::TransportOp::kSegmentsOut
                                      : device::TransportOp::kParametersOut;
}

}  // namespace

struct Lanes::Lane {
  Lanes* owner = nullptr;
  uint32_t slot = 0;
  Lane* next_free = nullptr;

  PartWork work;
  Stage stage = Stage::kIn;
  std::vector<device::Run> runs;
  std::vector<device::TransportRun> in;
  std::vector<device::TransportRun> out;
  uint64_t transferred = 0;  // runs of the present stage
  uint64_t submitted = 0;    // runs of the present command
  device::TransportCommand command;
  device::ChunkWork device_work;
  Event event;
  absl::Status status;

  static void OnCommandDone(device::TransportCommand* command, absl::Status status) noexcept {
    static_cast<Lane*>(command->context)->Report(std::move(status));
  }
  static void OnDeviceDone(device::ChunkWork* work, absl::Status status) noexcept {
    static_cast<Lane*>(work->context)->Report(std::move(status));
  }
  static void OnEvent(Event* event) noexcept {
    auto* lane = static_cast<Lane*>(event->context);
    lane->owner->Advance(*lane);
  }
  void Report(absl::Status result) {
    status = std::move(result);
    owner->loop_.Post(&event);
  }
};

Lanes::Lanes(const ChunkPlan& plan, device::Device& device, EventLoop& loop, Listener& listener)
    : plan_(plan), device_(device), loop_(loop), listener_(listener) {}

Lanes::~Lanes() = default;

void Lanes::Bind(std::shared_ptr<device::Transport> transport, std::vector<TensorTypes> types,
                 uint64_t max_runs_of_a_part, std::vector<std::byte*> parameters) {
  Unbind();
  transport_ = std::move(transport);
  types_ = std::move(types);
  parameters_ = std::move(parameters);
  parameters_.resize(types_.size());
  for (uint32_t slot = 0; slot < transport_->slot_count(); ++slot) {
    auto lane = std::make_unique<Lane>();
    lane->owner = this;
    lane->slot = slot;
    lane->runs.reserve(max_runs_of_a_part);
    lane->in.reserve(max_runs_of_a_part);
    lane->out.reserve(max_runs_of_a_part);
    lane->command.done = Lane::OnCommandDone;
    lane->command.context = lane.get();
    lane->device_work.done = Lane::OnDeviceDone;
    lane->device_work.context = lane.get();
    lane->event.run = Lane::OnEvent;
    lane->event.context = lane.get();
    lane->next_free = std::exchange(free_, lane.get());
    lanes_.push_back(std::move(lane));
  }
}

void Lanes::Unbind() {
  free_ = nullptr;
  lanes_.clear();
  transport_.reset();
}

void Lanes::Start(const PartWork& work) {
  Lane& lane = *free_;
  free_ = lane.next_free;
  ++busy_;
  lane.work = work;
  lane.status = absl::OkStatus();
  lane.transferred = 0;
  Build(lane);
  if (lane.in.empty()) {
    Compute(lane);
    return;
  }
  lane.stage = Stage::kIn;
  Transfer(lane, InOp(work.pass->op), lane.in);
}

// What goes in comes first in the slot; what goes out follows, so that neither overwrites the
// other whatever their element sizes are.
void Lanes::Build(Lane& lane) {
  lane.runs.clear();
  lane.in.clear();
  lane.out.clear();
  const Part& part = *lane.work.part;
  const auto runs = plan_.runs(plan_.chunks()[lane.work.chunk]).subspan(part.first_run);
  for (const ChunkRun& run : runs.first(part.run_count)) {
    AddRun(lane, run);
  }
  const auto tensor_first = [&](size_t i) {
    return runs[i].tensor_first + (part.first + lane.runs[i].first - runs[i].chunk_first);
  };
  uint64_t slot_offset = 0;
  for (size_t i = 0; i < lane.runs.size(); ++i) {
    if (lane.runs[i].participates) {
      PlaceIn(lane, lane.runs[i], tensor_first(i), &slot_offset);
    }
  }
  for (size_t i = 0; i < lane.runs.size(); ++i) {
    if (lane.runs[i].participates) {
      PlaceOut(lane, lane.runs[i], tensor_first(i), &slot_offset);
    }
  }
}

void Lanes::AddRun(Lane& lane, const ChunkRun& run) {
  const Part& part = *lane.work.part;
  const PassWork& pass = *lane.work.pass;
  const uint64_t begin = std::max(run.chunk_first, part.first);
  const uint64_t end = std::min(run.chunk_first + run.count, part.first + part.count);
  device::Run out;
  out.tensor = run.tensor;
  out.first = begin - part.first;
  out.count = end - begin;
  out.participates = pass.participates[run.tensor] != 0;
  out.gradient_type = types_[run.tensor].gradient;
  out.parameter_type = types_[run.tensor].parameter;
  if (out.participates && pass.op == device::ChunkOp::kAdam) {
    out.hyperparameters = pass.group_of[run.tensor];
    out.t = pass.t[run.tensor];
  }
  lane.runs.push_back(out);
}

void Lanes::PlaceIn(Lane& lane, device::Run& run, uint64_t tensor_first, uint64_t* slot_offset) {
  switch (lane.work.pass->op) {
    case device::ChunkOp::kAdam:
      PlaceGradient(lane, run, tensor_first, slot_offset);
      return;
    case device::ChunkOp::kRefresh:
      PlaceParameter(lane, run, tensor_first, slot_offset, lane.in);
      return;
    case device::ChunkOp::kWrite:
      PlaceBuffers(lane, run, tensor_first, slot_offset, lane.in);
      return;
    case device::ChunkOp::kMaterialize:
    case device::ChunkOp::kRead:
      return;
  }
}

void Lanes::PlaceOut(Lane& lane, device::Run& run, uint64_t tensor_first, uint64_t* slot_offset) {
  switch (lane.work.pass->op) {
    case device::ChunkOp::kAdam:
    case device::ChunkOp::kMaterialize:
      PlaceParameter(lane, run, tensor_first, slot_offset, lane.out);
      return;
    case device::ChunkOp::kRead:
      PlaceBuffers(lane, run, tensor_first, slot_offset, lane.out);
      return;
    case device::ChunkOp::kRefresh:
    case device::ChunkOp::kWrite:
      return;
  }
}

void Lanes::PlaceGradient(Lane& lane, device::Run& run, uint64_t tensor_first,
                          uint64_t* slot_offset) {
  const auto gradients = lane.work.pass->gradients;
  if (run.tensor < gradients.size() && gradients[run.tensor] != nullptr) {
    run.gradient = gradients[run.tensor] + tensor_first * device::SizeBytes(run.gradient_type);
    run.gradient_place = device::Place::kDevice;
    return;
  }
  run.gradient = Place(lane, run, tensor_first, run.gradient_type, slot_offset, lane.in);
}

void Lanes::PlaceParameter(Lane& lane, device::Run& run, uint64_t tensor_first,
                           uint64_t* slot_offset, std::vector<device::TransportRun>& transfers) {
  if (std::byte* const data = parameters_[run.tensor]; data != nullptr) {
    run.parameter = data + tensor_first * device::SizeBytes(run.parameter_type);
    run.parameter_place = device::Place::kDevice;
    return;
  }
  run.parameter = Place(lane, run, tensor_first, run.parameter_type, slot_offset, transfers);
}

void Lanes::PlaceBuffers(Lane& lane, device::Run& run, uint64_t tensor_first, uint64_t* slot_offset,
                         std::vector<device::TransportRun>& transfers) {
  const TensorAccess& tensor = lane.work.pass->access[run.tensor];
  for (int s = 0; s < kSegmentCount; ++s) {
    if (tensor.access[s] != Access::kBuffer) {
      continue;
    }
    run.buffer_types[s] = tensor.types[s];
    run.buffers[s] = Place(lane, run, tensor_first, tensor.types[s], slot_offset, transfers);
    transfers.back().segment = static_cast<uint32_t>(s);
  }
}

// Gives the run's elements of this type the next place in the slot, and their transfer.
std::byte* Lanes::Place(const Lane& lane, const device::Run& run, uint64_t tensor_first,
                        device::DataType type, uint64_t* slot_offset,
                        std::vector<device::TransportRun>& transfers) {
  const uint64_t size = device::SizeBytes(type);
  std::byte* place = transport_->slot(lane.slot).data() + *slot_offset;
  transfers.push_back({run.tensor, tensor_first * size, run.count * size, *slot_offset});
  *slot_offset += base::RoundUp(run.count * size, kSlotAlignmentBytes);
  return place;
}

void Lanes::Transfer(Lane& lane, device::TransportOp op,
                     const std::vector<device::TransportRun>& runs) {
  lane.submitted = std::min<uint64_t>(transport_->max_runs(), runs.size() - lane.transferred);
  lane.command.op = op;
  lane.command.slot = lane.slot;
  lane.command.binding = lane.work.pass->binding;
  lane.command.runs = std::span(runs).subspan(lane.transferred, lane.submitted);
  transport_->Submit(&lane.command);
}

void Lanes::Compute(Lane& lane) {
  const PartWork& part = lane.work;
  const Chunk& chunk = plan_.chunks()[part.chunk];
  const device::DataType* types = plan_.types(chunk);
  device::ChunkWork& work = lane.device_work;
  work.op = part.pass->op;
  work.profile = part.pass->profile;
  work.elements = part.part->count;
  work.moments_zero = part.moments_zero;
  work.mains_fresh = part.fresh;
  work.runs = lane.runs;
  work.hyperparameters = part.pass->hyperparameters;
  for (int s = 0; s < kSegmentCount; ++s) {
    const uint64_t offset =
        chunk.segments[s].frame_offset + part.part->first * device::SizeBytes(types[s]);
    work.segment_types[s] = types[s];
    work.in.data[s] = part.in->data + offset;
    work.out.data[s] = part.out == nullptr ? nullptr : part.out->data + offset;
  }
  lane.stage = Stage::kDevice;
  lane.transferred = 0;
  ++computing_;
  device_.Submit(&work);
}

void Lanes::Advance(Lane& lane) {
  const uint32_t chunk = lane.work.chunk;
  if (lane.stage == Stage::kDevice) {
    --computing_;
  } else {
    lane.transferred += lane.submitted;
  }
  if (!lane.status.ok()) {
    const absl::Status status = std::move(lane.status);
    Finish(lane);
    listener_.OnPartFailed(chunk, status);
    return;
  }
  switch (lane.stage) {
    case Stage::kIn:
      if (lane.transferred < lane.in.size()) {
        Transfer(lane, lane.command.op, lane.in);
      } else {
        Compute(lane);
      }
      return;
    case Stage::kDevice:
      listener_.OnPartComputed(chunk, lane.device_work.seconds);
      lane.stage = Stage::kOut;
      break;
    case Stage::kOut:
      break;
  }
  if (lane.transferred < lane.out.size()) {
    Transfer(lane, OutOp(lane.work.pass->op), lane.out);
    return;
  }
  Finish(lane);
  listener_.OnPartSent(chunk);
}

void Lanes::Finish(Lane& lane) {
  --busy_;
  lane.next_free = std::exchange(free_, &lane);
}

}  // namespace moment::pipeline
