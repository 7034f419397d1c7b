#include "tests/pipeline/rig.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "tests/support/catch.h"

namespace moment::pipeline {
namespace {

constexpr char kStateDirectory[] = "/state";

v1::DataType ToProto(device::DataType type) {
  switch (type) {
    case device::DataType::kBFloat16:
      return v1::DATA_TYPE_BFLOAT16;
    case device::DataType::kFloat16:
      return v1::DATA_TYPE_FLOAT16;
    default:
      return v1::DATA_TYPE_FLOAT32;
  }
}

store::OpenParameters MakeOpen(const RigOptions& options) {
  store::OpenParameters open;
  open.name.set_job(options.job);
  open.name.set_role("model");
  v1::Member member;
  member.set_name("opt0_0");
  member.mutable_segments()->set_exp_avg(ToProto(options.types.exp_avg));
  member.mutable_segments()->set_exp_avg_sq(ToProto(options.types.exp_avg_sq));
  open.members.push_back(member);
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    v1::Tensor tensor;
    tensor.set_name(absl::StrCat("t", i));
    tensor.add_shape(options.sizes[i]);
    tensor.set_parameter_type(ToProto(options.types.parameter));
    open.tensors.push_back(tensor);
  }
  open.resume = v1::RESUME_AUTO;
  open.bucket_elements = options.bucket_elements;
  open.commit_every = options.commit_every;
  open.blob_limit_bytes = 1024;
  return open;
}

}  // namespace

std::string StepId(uint64_t sequence) {
  std::string id(16, '\0');
  std::memcpy(id.data(), &sequence, sizeof(sequence));
  return id;
}

Machine::Machine(io::SimulatedDisk& simulated, const RigOptions& options, io::IoEngine* over)
    : disk(simulated),
      engine(over == nullptr ? simulated.engine() : *over),
      workers(2),
      device(workers) {
  io::CreateDirectories(disk.files(), kStateDirectory, 0750).IgnoreError();
  NodeOptions node_options;
  node_options.host_memory_bytes = options.host_memory_bytes;
  node = *Node::Create(node_options, workers);
  node->AddStateDirectory(kStateDirectory, engine);
}

Machine::~Machine() = default;

Rig::Rig(Machine& on, const RigOptions& with)
    : machine(on),
      options(with),
      trainer(std::make_shared<MemoryTrainer>(with.trainer)),
      reference(with.sizes, with.types) {
  trainer->parameters.resize(options.sizes.size());
  trainer->gradients.resize(options.sizes.size());
}

absl::Status Rig::Open() {
  store::Environment environment;
  environment.files = &machine.disk.files();
  environment.engine = &machine.engine;
  environment.direct_io = true;
  environment.state_directory = kStateDirectory;
  MOMENT_ASSIGN_OR_RETURN(auto store, store::Store::Open(environment, MakeOpen(options)));
  PipelineOptions pipeline_options;
  pipeline_options.commit_every = options.commit_every;
  pipeline_options.chunk_bytes = options.chunk_bytes;
  MOMENT_ASSIGN_OR_RETURN(pipeline, StatePipeline::Create(*machine.node, machine.device,
                                                          std::move(store), pipeline_options));
  Attach();
  return absl::OkStatus();
}

absl::Status Rig::Reopen() {
  Close();
  MOMENT_RETURN_IF_ERROR(Open());
  if (const auto at = history.find(sequence()); at != history.end()) {
    reference = at->second;
  }
  return absl::OkStatus();
}

void Rig::Attach() {
  Bindings bindings;
  bindings.transport = trainer;
  bindings.gradient_types.assign(options.sizes.size(), options.types.gradient);
  pipeline->Attach(std::move(bindings));
}

absl::Status Rig::Fill(uint64_t seed) {
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    trainer->parameters[i] =
        RandomValues(seed * 1000 + i, options.sizes[i], options.types.parameter);
    reference.Refresh(i, trainer->parameters[i], /*keep=*/false);
  }
  history.clear();
  history.emplace(0, reference);
  RefreshParameters refresh;
  refresh.discard = pipeline->applied().has_value();
  return pipeline->Refresh(refresh).status();
}

void Rig::SetGradients(uint64_t sequence) {
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    trainer->gradients[i] =
        RandomValues(sequence * 7919 + i, options.sizes[i], options.types.gradient);
  }
}

StepParameters Rig::MakeStep(uint64_t sequence) const {
  StepParameters step;
  step.sequence = sequence;
  step.step_id = StepId(sequence);
  step.blob = absl::StrCat("blob of ", sequence);
  device::Hyperparameters one;
  one.lr = 1e-3 * static_cast<double>(sequence);
  one.beta1 = 0.9;
  one.beta2 = 0.999;
  one.eps = 1e-8;
  one.weight_decay = 0.01;
  device::Hyperparameters two = one;
  two.lr = 3e-4;
  two.mode = device::AdamMode::kAdam;
  step.hyperparameters = {one, two};
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    step.group_of.push_back(i % 2);
  }
  for (const size_t tensor : sits_out) {
    step.group_of[tensor] = kSitsOut;
  }
  return step;
}

absl::StatusOr<v1::StepStatistics> Rig::Step(uint64_t sequence) {
  SetGradients(sequence);
  const StepParameters step = MakeStep(sequence);
  MOMENT_ASSIGN_OR_RETURN(v1::StepStatistics statistics, pipeline->Step(step));
  reference.Step(trainer->gradients, step.hyperparameters, step.group_of);
  history.insert_or_assign(sequence, reference);
  return statistics;
}

std::string Rig::ParametersDiffer() const {
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    if (trainer->parameters[i] != reference.Parameter(i)) {
      return absl::StrCat("parameter of tensor ", i);
    }
  }
  return "";
}

std::string Rig::StateDiffers(const store::State& state) const {
  const auto& layout = *state.layout;
  for (size_t i = 0; i < options.sizes.size(); ++i) {
    if (state.t[i] != reference.tensors()[i].t) {
      return absl::StrCat("t of tensor ", i, ": ", state.t[i], " for ", reference.tensors()[i].t);
    }
  }
  for (size_t b = 0; b < layout.buckets().size(); ++b) {
    for (int s = 0; s < store::kSegmentCount; ++s) {
      const store::SegmentGeometry& segment = layout.buckets()[b].segments[s];
      auto buffer = base::AlignedBuffer::Allocate(segment.length_bytes);
      const absl::Status read = io::Read(machine.disk.engine(), state.images[b]->file(),
                                         segment.offset, buffer->data(), segment.length_bytes);
      if (!read.ok()) {
        return read.ToString();
      }
      const uint64_t size = store::SizeBytes(segment.type);
      const std::byte* position = buffer->data();
      for (const v1::BucketSlice& slice : layout.proto().buckets(static_cast<int>(b)).slices()) {
        const ReferenceTensor& tensor = reference.tensors()[slice.tensor()];
        const std::byte* expected = tensor.segments[s].data() + slice.element_offset() * size;
        if (std::memcmp(position, expected, slice.element_count() * size) != 0) {
          return absl::StrCat(store::SegmentName(s), " of tensor ", slice.tensor(), " in bucket ",
                              b);
        }
        position += slice.element_count() * size;
      }
      for (; position < buffer->data() + segment.length_bytes; ++position) {
        if (*position != std::byte{0}) {
          return absl::StrCat("pad of ", store::SegmentName(s), " in bucket ", b);
        }
      }
    }
  }
  return "";
}

std::string Rig::FilesDiffer() const {
  const auto newest = pipeline->store().newest();
  return newest == nullptr ? "no commit" : StateDiffers(*newest);
}

std::string Rig::BucketPath(size_t bucket) const {
  return pipeline->store().newest()->images[bucket]->file().path();
}

}  // namespace moment::pipeline
