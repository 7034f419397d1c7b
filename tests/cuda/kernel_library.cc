// The CUDA kernels and their reference behind a C function each, for the comparison with torch in
// tests/gpu. Runs in torch's own process, on the first GPU, in the context that torch has.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cuda/adam_reference.h"
#include "cuda/kernel_modules.h"
#include "cuda/owners.h"
#include "cuda/piece_plan.h"
#include "cuda/power_float.h"
#include "cuda/scalar_table.h"
#include "daemon/base/errors.h"
#include "daemon/device/chunk_check.h"
#include "daemon/device/float_conversion.h"
#include "tests/cuda/gpu_probe.h"

namespace moment::cuda {
namespace {

using device::AdamElement;
using device::ChunkWork;
using device::DataType;
using device::Hyperparameters;
using device::Profile;
using device::Run;

std::string last_error;

int Report(const absl::Status& status) {
  last_error = std::string(status.message());
  return status.ok() ? 0 : 1;
}

// What lives as long as the process.
struct Library {
  std::unique_ptr<GpuProbe> probe;
  std::optional<KernelModules> kernels;
  Stream stream;

  const Context& context() const { return probe->context(); }
  const Driver& driver() const { return probe->context().driver(); }
};

absl::StatusOr<Library*> Open() {
  static Library* library = nullptr;
  if (library == nullptr) {
    auto made = std::make_unique<Library>();
    MOMENT_ASSIGN_OR_RETURN(made->probe, GpuProbe::Create());
    MOMENT_ASSIGN_OR_RETURN(made->stream, MakeStream(made->context()));
    MOMENT_ASSIGN_OR_RETURN(KernelModules kernels, KernelModules::Load(made->context()));
    made->kernels.emplace(std::move(kernels));
    library = made.release();
  }
  return library;
}

}  // namespace

// Mirrored by tests/gpu/kernel_library.py. Types, modes, operations and profiles are the numbers of
// the enums. Memory of the GPU, or of the host for the reference.
struct Call {
  double lr, beta1, beta2, eps, weight_decay;
  float gradient_scale;
  uint8_t is_adam, bias_correction, maximize, profile, op;
  uint64_t t, count;
  uint8_t exp_avg_type, exp_avg_sq_type, gradient_type, parameter_type;
  void* main;
  void* exp_avg;
  void* exp_avg_sq;
  const void* gradient;
  void* parameter;
};

namespace {

Hyperparameters HyperparametersOf(const Call& call) {
  Hyperparameters h;
  h.lr = call.lr;
  h.beta1 = call.beta1;
  h.beta2 = call.beta2;
  h.eps = call.eps;
  h.weight_decay = call.weight_decay;
  h.mode = call.is_adam != 0 ? device::AdamMode::kAdam : device::AdamMode::kAdamW;
  h.bias_correction = call.bias_correction != 0;
  h.maximize = call.maximize != 0;
  h.gradient_scale = call.gradient_scale;
  return h;
}

// A call made ready: its tables lie on the GPU.
struct Plan {
  Hyperparameters hyperparameters;
  Run run;
  ChunkWork work;
  PiecePlan piece;
  DeviceMemory tables;

  explicit Plan(const Call& call) : hyperparameters(HyperparametersOf(call)) {
    run.count = call.count;
    run.t = call.t;
    run.gradient = call.gradient;
    run.parameter = call.parameter;
    run.gradient_type = static_cast<DataType>(call.gradient_type);
    run.parameter_type = static_cast<DataType>(call.parameter_type);
    run.gradient_place = run.parameter_place = device::Place::kDevice;
    work.mains_fresh = true;
    work.op = static_cast<device::ChunkOp>(call.op);
    work.profile = static_cast<Profile>(call.profile);
    work.segment_types[device::kExpAvg] = static_cast<DataType>(call.exp_avg_type);
    work.segment_types[device::kExpAvgSq] = static_cast<DataType>(call.exp_avg_sq_type);
    work.elements = call.count;
    void* const segments[] = {call.main, call.exp_avg, call.exp_avg_sq};
    for (int s = 0; s < device::kSegmentCount; ++s) {
      work.in.data[s] = work.out.data[s] = static_cast<std::byte*>(segments[s]);
    }
    work.runs = {&run, 1};
    work.hyperparameters = {&hyperparameters, 1};
  }

  absl::Status Prepare(const Library& library) {
    MOMENT_RETURN_IF_ERROR(device::CheckChunk(work));
    SlotLayout layout;
    layout.table_bytes =
        4096 + (work.elements / kTileElements + 2) * sizeof(KernelTile) + kMaxScalarBytes;
    std::vector<std::byte> host(layout.table_bytes);
    PlanPiece(work, {0, work.elements, 0, 1}, layout, {}, 0, host.data(), piece);
    MOMENT_ASSIGN_OR_RETURN(tables, AllocateDeviceMemory(library.context(), piece.table_bytes));
    const Driver& driver = library.driver();
    const ContextGuard guard(library.context());
    MOMENT_RETURN_IF_ERROR(
        driver.Check(driver.cuMemcpyHtoDAsync(tables.get(), host.data(), piece.table_bytes,
                                              library.stream.get()),
                     "copy the tables to", "the GPU"));
    if (work.op == device::ChunkOp::kAdam && CompletesScalars(work.profile)) {
      MOMENT_RETURN_IF_ERROR(library.kernels->CompleteScalars(library.stream.get(), work.profile,
                                                              tables.get(), piece.scalar_count));
    }
    return driver.Check(driver.cuStreamSynchronize(library.stream.get()), "wait for", "the GPU");
  }

  absl::Status Enqueue(const Library& library, CUstream stream) const {
    const auto at = [this](uint64_t offset) {
      return reinterpret_cast<void*>(tables.get() + offset);
    };
    KernelChunk chunk;
    for (int s = 0; s < device::kSegmentCount; ++s) {
      chunk.segments[s] = work.in.data[s];
    }
    chunk.scalars = at(0);
    chunk.runs = static_cast<const KernelRun*>(at(piece.runs_offset));
    chunk.tiles = static_cast<const KernelTile*>(at(piece.tiles_offset));
    const ContextGuard guard(library.context());
    return library.kernels->Run(stream, work, chunk, piece.tile_count);
  }
};

float LoadHost(const void* base, DataType type, uint64_t i) {
  switch (type) {
    case DataType::kBFloat16:
      return device::WidenBFloat16(static_cast<const uint16_t*>(base)[i]);
    case DataType::kFloat16:
      return device::WidenFloat16(static_cast<const uint16_t*>(base)[i]);
    default:
      return static_cast<const float*>(base)[i];
  }
}

void StoreHost(float value, void* base, DataType type, uint64_t i) {
  switch (type) {
    case DataType::kBFloat16:
      static_cast<uint16_t*>(base)[i] = device::NarrowBFloat16(value);
      return;
    case DataType::kFloat16:
      static_cast<uint16_t*>(base)[i] = device::NarrowFloat16(value);
      return;
    default:
      static_cast<float*>(base)[i] = value;
  }
}

absl::StatusOr<Plan*> MakePlan(const Call& call) {
  MOMENT_ASSIGN_OR_RETURN(Library * library, Open());
  auto plan = std::make_unique<Plan>(call);
  MOMENT_RETURN_IF_ERROR(plan->Prepare(*library));
  return plan.release();
}

}  // namespace

extern "C" {

const char* moment_cuda_error() { return last_error.c_str(); }

// Null on an error. The tables stay on the GPU until moment_cuda_free.
void* moment_cuda_plan(const Call* call) {
  const absl::StatusOr<Plan*> plan = MakePlan(*call);
  Report(plan.status());
  return plan.ok() ? *plan : nullptr;
}

// Enqueues on `stream` (CUstream; null: the default stream). 0, or 1 on an error.
int moment_cuda_run(const void* plan, void* stream) {
  const absl::StatusOr<Library*> library = Open();
  return Report(library.ok() ? static_cast<const Plan*>(plan)->Enqueue(
                                   **library, static_cast<CUstream>(stream))
                             : library.status());
}

void moment_cuda_free(void* plan) { delete static_cast<Plan*>(plan); }

// The reference, on host memory.
void moment_cuda_reference(const Call* call) {
  const auto profile = static_cast<Profile>(call->profile);
  const auto exp_avg_type = static_cast<DataType>(call->exp_avg_type);
  const auto exp_avg_sq_type = static_cast<DataType>(call->exp_avg_sq_type);
  std::vector<std::byte> scalars(kMaxScalarBytes);
  WriteScalars(profile, HyperparametersOf(*call), call->t, scalars.data());
  for (uint64_t i = 0; i < call->count; ++i) {
    AdamElement element{LoadHost(call->main, DataType::kFloat32, i),
                        LoadHost(call->exp_avg, exp_avg_type, i),
                        LoadHost(call->exp_avg_sq, exp_avg_sq_type, i)};
    element = AdamUpdate(profile, scalars.data(),
                         LoadHost(call->gradient, static_cast<DataType>(call->gradient_type), i),
                         element);
    StoreHost(element.main, call->main, DataType::kFloat32, i);
    StoreHost(element.exp_avg, call->exp_avg, exp_avg_type, i);
    StoreHost(element.exp_avg_sq, call->exp_avg_sq, exp_avg_sq_type, i);
    StoreHost(element.main, call->parameter, static_cast<DataType>(call->parameter_type), i);
  }
}

float moment_cuda_power(float base, float exponent) {
  return PowerFloat(base, exponent, ExactApproximations().reciprocal);
}

// The GPU's approximate reciprocals (root = 0) or square roots (1) of the numbers whose bits are
// first_bits, first_bits + 1, ...; host memory. 0, or 1 on an error.
int moment_cuda_approximations(int root, uint32_t first_bits, uint32_t count, float* results) {
  const absl::StatusOr<Library*> library = Open();
  if (!library.ok()) {
    return Report(library.status());
  }
  GpuProbe& probe = *(*library)->probe;
  const auto values =
      root != 0 ? probe.SquareRoots(first_bits, count) : probe.Reciprocals(first_bits, count);
  if (values.ok()) {
    std::copy(values->begin(), values->end(), results);
  }
  return Report(values.status());
}

}  // extern "C"

}  // namespace moment::cuda
