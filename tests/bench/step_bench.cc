#include "tests/bench/step_bench.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/errors.h"
#include "daemon/base/worker_pool.h"
#include "daemon/device/host_device.h"
#include "daemon/io/io_engine.h"
#include "daemon/pipeline/node.h"
#include "daemon/pipeline/state_pipeline.h"
#include "daemon/store/store.h"
#include "tests/bench/bench_trainer.h"
#include "tests/bench/disk_limits.h"

namespace moment::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kTensorElements = uint64_t{4096} * 4096;
constexpr uint64_t kSlotBytes = uint64_t{16} << 20;
constexpr uint32_t kSlots = 3;

// A directory of its own that goes with it.
class Directory {
 public:
  explicit Directory(const std::string& parent)
      : path_(absl::StrCat(parent.empty() ? "." : parent, "/moment-bench-", ::getpid())) {}
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct Machine {
  std::unique_ptr<io::FileSystem> files = io::CreatePosixFileSystem();
  io::CreatedEngine engine;
  io::DirectoryProbe probe;
  std::unique_ptr<base::WorkerPool> workers;
  std::unique_ptr<device::HostDevice> device;
  std::unique_ptr<pipeline::Node> node;
};

absl::StatusOr<std::unique_ptr<Machine>> MakeMachine(const StepBenchOptions& options,
                                                     const std::string& directory) {
  auto machine = std::make_unique<Machine>();
  MOMENT_RETURN_IF_ERROR(io::CreateDirectories(*machine->files, directory, 0750));
  io::EngineOptions engine;
  engine.kind = options.engine == "io_uring"  ? io::EngineKind::kIoUring
                : options.engine == "threads" ? io::EngineKind::kThreads
                                              : io::EngineKind::kAuto;
  engine.depth = options.io_depth;
  MOMENT_ASSIGN_OR_RETURN(machine->engine, io::CreateEngine(engine));
  MOMENT_ASSIGN_OR_RETURN(machine->probe, io::ProbeDirectory(directory));
  const unsigned threads = std::max(2u, std::thread::hardware_concurrency());
  machine->workers = std::make_unique<base::WorkerPool>(static_cast<int>(threads));
  machine->device = std::make_unique<device::HostDevice>(*machine->workers);
  pipeline::NodeOptions node;
  node.host_memory_bytes = options.host_memory_bytes;
  node.io_depth = options.io_depth;
  MOMENT_ASSIGN_OR_RETURN(machine->node, pipeline::Node::Create(node, *machine->workers));
  machine->node->AddStateDirectory(directory, *machine->engine.engine);
  return machine;
}

store::OpenParameters MakeOpen(const StepBenchOptions& options) {
  store::OpenParameters open;
  open.name.set_job("moment-bench");
  open.name.set_role("model");
  open.members.emplace_back().set_name("opt0_0");
  open.commit_every = options.commit_every;
  open.resume = v1::RESUME_AUTO;
  auto left = static_cast<uint64_t>(options.parameters);
  while (left > 0) {
    v1::Tensor& tensor = open.tensors.emplace_back();
    const uint64_t elements = std::min(left, kTensorElements);
    tensor.set_name(absl::StrCat("layer", open.tensors.size() - 1, ".weight"));
    tensor.add_shape(elements);
    tensor.set_parameter_type(v1::DATA_TYPE_FLOAT32);
    left -= elements;
  }
  return open;
}

absl::StatusOr<std::unique_ptr<pipeline::StatePipeline>> MakePipeline(
    Machine& machine, const StepBenchOptions& options, const std::string& directory,
    const std::shared_ptr<BenchTrainer>& trainer) {
  store::Environment environment;
  environment.files = machine.files.get();
  environment.engine = machine.engine.engine.get();
  environment.direct_io = machine.probe.direct_io;
  environment.state_directory = directory;
  MOMENT_ASSIGN_OR_RETURN(auto store, store::Store::Open(environment, MakeOpen(options)));
  pipeline::PipelineOptions pipeline_options;
  pipeline_options.commit_every = options.commit_every;
  MOMENT_ASSIGN_OR_RETURN(auto pipeline,
                          pipeline::StatePipeline::Create(*machine.node, *machine.device,
                                                          std::move(store), pipeline_options));
  pipeline::Bindings bindings;
  bindings.transport = trainer;
  pipeline->Attach(std::move(bindings));
  return pipeline;
}

pipeline::StepParameters MakeStep(uint64_t sequence, size_t tensors) {
  pipeline::StepParameters step;
  step.sequence = sequence;
  step.step_id.assign(16, '\0');
  std::memcpy(step.step_id.data(), &sequence, sizeof(sequence));
  device::Hyperparameters& group = step.hyperparameters.emplace_back();
  group.lr = 1e-3;
  group.beta1 = 0.9;
  group.beta2 = 0.999;
  group.eps = 1e-8;
  group.weight_decay = 0.01;
  step.group_of.assign(tensors, 0);
  return step;
}

// Seconds of Step and Flush together: the state is on disk before and after.
absl::StatusOr<double> TimedStep(pipeline::StatePipeline& pipeline, uint64_t sequence,
                                 StepBenchResult* result) {
  const auto tensors = static_cast<size_t>(pipeline.store().layout()->proto().tensors_size());
  const pipeline::StepParameters step = MakeStep(sequence, tensors);
  const Clock::time_point begin = Clock::now();
  MOMENT_ASSIGN_OR_RETURN(const v1::StepStatistics statistics, pipeline.Step(step));
  MOMENT_RETURN_IF_ERROR(pipeline.Flush(sequence).status());
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  result->bytes_read = statistics.bytes_read();
  result->bytes_written = statistics.bytes_written();
  result->waiting_for_read_seconds = statistics.waiting_for_read_seconds();
  result->waiting_for_copy_seconds = statistics.waiting_for_copy_seconds();
  result->waiting_for_adam_seconds = statistics.waiting_for_adam_seconds();
  result->waiting_for_frame_seconds = statistics.waiting_for_frame_seconds();
  result->waiting_for_commit_seconds = statistics.waiting_for_commit_seconds();
  return seconds;
}

// The largest resident size so far, in bytes.
uint64_t PeakMemory() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

double Seconds(const std::function<absl::Status()>& call, absl::Status* status) {
  const Clock::time_point begin = Clock::now();
  status->Update(call());
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A step beside a pin of the one before.
absl::StatusOr<double> TimedStepBesidePin(pipeline::StatePipeline& pipeline, uint64_t sequence,
                                          StepBenchResult* result) {
  absl::Status status;
  store::PinParameters pin;
  pin.id = absl::StrCat("bench-", sequence);
  result->pin_seconds.push_back(Seconds([&] { return pipeline.Pin(pin).status(); }, &status));
  MOMENT_RETURN_IF_ERROR(status);
  MOMENT_ASSIGN_OR_RETURN(const double seconds, TimedStep(pipeline, sequence, result));
  result->unpin_seconds.push_back(Seconds([&] { return pipeline.Unpin(pin.id); }, &status));
  MOMENT_RETURN_IF_ERROR(status);
  return seconds;
}

absl::Status MeasureSteps(const StepBenchOptions& options, pipeline::StatePipeline& pipeline,
                          StepBenchResult* result) {
  for (uint64_t sequence = 1; sequence <= options.warm_up + options.steps; ++sequence) {
    const bool measured = sequence > options.warm_up;
    MOMENT_ASSIGN_OR_RETURN(const double seconds,
                            measured&& options.pins ? TimedStepBesidePin(pipeline, sequence, result)
                                                    : TimedStep(pipeline, sequence, result));
    if (measured) {
      result->step_seconds.push_back(seconds);
    }
  }
  result->peak_memory_bytes = PeakMemory();
  result->resident_bytes = pipeline.Status().resident_bytes;
  return pipeline.Drain();
}

absl::Status MeasureLimits(const StepBenchOptions& options, Machine& machine,
                           const std::string& directory, pipeline::StatePipeline& pipeline,
                           const BenchTrainer& trainer, StepBenchResult* result) {
  DiskLimits::Options limits_options;
  limits_options.files = machine.files.get();
  limits_options.engine = machine.engine.engine.get();
  limits_options.device = machine.device.get();
  limits_options.directory = directory;
  limits_options.direct_io = machine.probe.direct_io;
  limits_options.io_depth = options.io_depth;
  limits_options.chunk_bytes = pipeline::PipelineOptions().chunk_bytes;
  MOMENT_ASSIGN_OR_RETURN(auto limits,
                          DiskLimits::Create(limits_options, *pipeline.store().layout()));
  result->state_bytes = limits->state_bytes();
  const auto state = pipeline.store().newest();
  for (uint32_t i = 0; i < options.steps; ++i) {
    MOMENT_ASSIGN_OR_RETURN(const double raw, limits->RawSeconds(*state));
    result->raw_seconds.push_back(raw);
    MOMENT_ASSIGN_OR_RETURN(const double serial, limits->SerialSeconds(*state, trainer.gradients(),
                                                                       trainer.parameters()));
    result->serial_step_seconds.push_back(serial);
  }
  return absl::OkStatus();
}

std::string JsonList(const std::vector<double>& values) {
  return absl::StrCat("[", absl::StrJoin(values, ", "), "]");
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) {
    return 0;
  }
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double StepBenchResult::raw_bytes_per_s() const {
  const double seconds = Median(raw_seconds);
  return seconds == 0 ? 0 : 2 * static_cast<double>(state_bytes) / seconds;
}

double StepBenchResult::ratio_to_raw() const {
  const double raw = raw_bytes_per_s() * Median(step_seconds);
  return raw == 0 ? 0 : static_cast<double>(bytes_read + bytes_written) / raw;
}

double StepBenchResult::speedup_over_serial() const {
  const double seconds = Median(step_seconds);
  return seconds == 0 ? 0 : Median(serial_step_seconds) / seconds;
}

std::string StepBenchResult::Json() const {
  return absl::StrCat(
      "{\"schema_version\": 1, \"parameters\": ", parameters, ", \"io_engine\": \"", engine,
      "\", \"direct_io\": ", direct_io ? "true" : "false", ", \"state_bytes\": ", state_bytes,
      ", \"resident_bytes\": ", resident_bytes, ", \"bytes_read\": ", bytes_read,
      ", \"bytes_written\": ", bytes_written, ", \"step_seconds\": ", JsonList(step_seconds),
      ", \"pin_seconds\": ", JsonList(pin_seconds),
      ", \"unpin_seconds\": ", JsonList(unpin_seconds),
      ", \"raw_bytes_per_s\": ", raw_bytes_per_s(), ", \"raw_seconds\": ", JsonList(raw_seconds),
      ", \"ratio_to_raw\": ", ratio_to_raw(),
      ", \"serial_step_seconds\": ", Median(serial_step_seconds),
      ", \"serial_step_seconds_list\": ", JsonList(serial_step_seconds),
      ", \"speedup_over_serial\": ", speedup_over_serial(),
      ", \"waiting_for_read_seconds\": ", waiting_for_read_seconds,
      ", \"waiting_for_copy_seconds\": ", waiting_for_copy_seconds,
      ", \"waiting_for_adam_seconds\": ", waiting_for_adam_seconds,
      ", \"waiting_for_frame_seconds\": ", waiting_for_frame_seconds,
      ", \"waiting_for_commit_seconds\": ", waiting_for_commit_seconds,
      ", \"peak_memory_bytes\": ", peak_memory_bytes, "}");
}

absl::StatusOr<StepBenchResult> RunStepBench(const StepBenchOptions& options) {
  if (options.device != "host") {
    return absl::InvalidArgumentError(
        absl::StrCat("device ", options.device, " is not built in; use host"));
  }
  StepBenchResult result;
  result.parameters = static_cast<uint64_t>(options.parameters);
  Directory directory(options.state_directory);
  MOMENT_ASSIGN_OR_RETURN(auto machine, MakeMachine(options, directory.path()));
  result.engine = machine->engine.engine->name();
  result.engine_reason = machine->engine.reason;
  result.direct_io = machine->probe.direct_io;
  auto trainer = std::make_shared<BenchTrainer>(kSlots, kSlotBytes);
  MOMENT_ASSIGN_OR_RETURN(auto pipeline,
                          MakePipeline(*machine, options, directory.path(), trainer));
  MOMENT_RETURN_IF_ERROR(pipeline->Refresh({}).status());
  MOMENT_RETURN_IF_ERROR(MeasureSteps(options, *pipeline, &result));
  MOMENT_RETURN_IF_ERROR(
      MeasureLimits(options, *machine, directory.path(), *pipeline, *trainer, &result));
  return result;
}

}  // namespace moment::bench
