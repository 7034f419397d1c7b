#include "cuda/cuda_device.h"

#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "cuda/host_registry.h"
#include "cuda/kernel_modules.h"
#include "cuda/memory_importer.h"
#include "cuda/nvml.h"
#include "cuda/owners.h"
#include "cuda/staging_slot.h"
#include "cuda/watched_importer.h"
#include "daemon/base/errors.h"
#include "daemon/base/memory.h"
#include "daemon/device/chunk_check.h"

namespace moment::cuda {
namespace {

using device::ChunkWork;

constexpr uint32_t kMaxRunsOfPiece = 4096;
constexpr uint64_t kSlotAlignment = 4096;

// A misaligned access would end this process's use of the GPU.
absl::Status CheckAlignment(const device::Run& run) {
  const auto misaligned = [](const void* data, device::Place place, device::DataType type) {
    return place == device::Place::kDevice &&
           reinterpret_cast<uint64_t>(data) % device::SizeBytes(type) != 0;
  };
  if (misaligned(run.gradient, run.gradient_place, run.gradient_type) ||
      misaligned(run.parameter, run.parameter_place, run.parameter_type)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "run of tensor ", run.tensor, ": an address on the GPU is not a multiple of the element"));
  }
  return absl::OkStatus();
}

absl::Status CheckWork(const ChunkWork& work) {
  if (!HasKernels(work.profile)) {
    return absl::InvalidArgumentError(
        "a GPU computes the profiles torch-cuda, torch-cuda-foreach, torch-cuda-210 and te");
  }
  for (const device::Run& run : work.runs) {
    MOMENT_RETURN_IF_ERROR(CheckAlignment(run));
  }
  return device::CheckChunk(work);
}

}  // namespace

struct CudaDevice::State {
  // A chunk in work.
  struct Job {
    ChunkWork* work = nullptr;
    absl::Status status;
    double seconds = 0;
    int pieces_in_work = 0;
    bool all_started = false;
  };

  struct Slot {
    std::unique_ptr<StagingSlot> staging;
    Job* job = nullptr;
    Slot* next = nullptr;  // in one of the two lists
  };

  State(Context made, const Gpu& gpu, const CudaDeviceOptions& device_options)
      : identity(gpu), options(device_options), context(std::move(made)) {}

  ~State() {
    {
      absl::MutexLock lock(&mutex);
      mutex.Await(absl::Condition(
          +[](uint64_t* count) { return *count == 0; }, &outstanding));
      stopping = true;
    }
    if (starter.joinable()) {
      starter.join();
      finisher.join();
    }
  }

  // `used_before`: memory of the GPU in use before the context was made.
  absl::Status Prepare(std::optional<uint64_t> used_before) {
    MOMENT_RETURN_IF_ERROR(ReadModel());
    MOMENT_ASSIGN_OR_RETURN(KernelModules loaded, KernelModules::Load(context));
    kernels.emplace(std::move(loaded));
    MOMENT_RETURN_IF_ERROR(MakeSlots());
    MeasureContext(used_before);
    starter = std::thread([this] { StartWorks(); });
    finisher = std::thread([this] { FinishPieces(); });
    return absl::OkStatus();
  }

  absl::Status ReadModel() {
    const Driver& driver = context.driver();
    int major = 0;
    int minor = 0;
    int version = 0;
    MOMENT_RETURN_IF_ERROR(
        driver.Check(driver.cuDeviceGetAttribute(
                         &major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, context.gpu()),
                     "read an attribute of", identity.uuid));
    MOMENT_RETURN_IF_ERROR(
        driver.Check(driver.cuDeviceGetAttribute(
                         &minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, context.gpu()),
                     "read an attribute of", identity.uuid));
    MOMENT_RETURN_IF_ERROR(
        driver.Check(driver.cuDriverGetVersion(&version), "get the version of", "the driver"));
    description = absl::StrCat(identity.model, ", compute capability ", major, ".", minor,
                               ", driver for CUDA ", version / 1000, ".", version % 1000 / 10);
    return absl::OkStatus();
  }

  // The driver tells no process what its context takes. What others allocate or free meanwhile
  // (0.2 to 0.4 s) counts too.
  void MeasureContext(std::optional<uint64_t> used_before) {
    const std::optional<uint64_t> used = UsedBytes(identity.uuid);
    const uint64_t ours = memory_use.staging_bytes;
    if (used.has_value() && used_before.has_value() && *used > *used_before + ours) {
      memory_use.context_bytes = *used - *used_before - ours;
    }
  }

  static std::optional<uint64_t> UsedBytes(const std::string& uuid) {
    const absl::StatusOr<const Nvml*> nvml = Nvml::Load();
    return nvml.ok() ? (*nvml)->UsedBytes(uuid) : std::nullopt;
  }

  absl::Status MakeSlots() {
    const auto count = static_cast<uint64_t>(options.slots);
    const uint64_t slot_bytes = base::RoundDown(options.staging_bytes / count, kSlotAlignment);
    const SlotLayout layout = MakeSlotLayout(slot_bytes, kMaxRunsOfPiece);
    if (layout.limits.data_bytes < kMinSlotDataBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(options.slots, " staging slots of ", slot_bytes,
                       " bytes are too small: ", layout.table_bytes + kMinSlotDataBytes,
                       " bytes each are needed; raise the staging memory "
                       "of the GPU"));
    }
    MOMENT_ASSIGN_OR_RETURN(staging, AllocateDeviceMemory(context, count * slot_bytes));
    memory_use.staging_bytes = count * slot_bytes;
    absl::MutexLock lock(&mutex);
    slots = std::vector<Slot>(count);
    jobs = std::vector<Job>(count + 1);
    for (uint64_t i = 0; i < count; ++i) {
      MOMENT_ASSIGN_OR_RETURN(
          slots[i].staging,
          StagingSlot::Create(context, *kernels, layout, staging.get() + i * slot_bytes));
      PushFree(&slots[i]);
    }
    for (Job& job : jobs) {
      idle_jobs.push_back(&job);
    }
    limits = layout.limits;
    absl::StrAppend(&description, ", ", count, " staging slots of ", slot_bytes >> 20, " MiB");
    return absl::OkStatus();
  }

  void Submit(ChunkWork* work) {
    absl::MutexLock lock(&mutex);
    ++outstanding;
    work->state = nullptr;  // links what waits
    (waiting_tail == nullptr ? waiting_head : waiting_tail->state) = work;
    waiting_tail = work;
  }

  ChunkWork* TakeWaiting() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    auto* work = static_cast<ChunkWork*>(waiting_head);
    if (work != nullptr) {
      waiting_head = work->state;
      waiting_tail = waiting_head == nullptr ? nullptr : waiting_tail;
    }
    return work;
  }

  void PushFree(Slot* slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    slot->next = free_slots;
    free_slots = slot;
  }

  Slot* TakeFree() {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(
        +[](Slot** head) { return *head != nullptr; }, &free_slots));
    return std::exchange(free_slots, free_slots->next);
  }

  // The starter's thread.
  void StartWorks() {
    while (Job* job = NextJob()) {
      absl::Status status = StartPieces(*job);
      bool ended = false;
      {
        absl::MutexLock lock(&mutex);
        Note(*job, status);
        job->all_started = true;
        ended = job->pieces_in_work == 0;
      }
      if (ended) {
        End(*job);
      }
    }
  }

  // Null when the device ends. A job is always idle: each of the others has a piece in a slot.
  Job* NextJob() {
    absl::MutexLock lock(&mutex);
    const auto has_work = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) {
      return waiting_head != nullptr || stopping;
    };
    mutex.Await(absl::Condition(&has_work));
    ChunkWork* work = TakeWaiting();
    if (work == nullptr) {
      return nullptr;
    }
    Job* job = idle_jobs.back();
    idle_jobs.pop_back();
    *job = Job{work, lost, 0, 0, false};
    return job;
  }

  absl::Status StartPieces(Job& job) {
    MOMENT_RETURN_IF_ERROR(job.status);
    MOMENT_RETURN_IF_ERROR(CheckWork(*job.work));
    for (PieceCursor cursor(*job.work, limits); !cursor.done();) {
      const Piece piece = cursor.Next();
      Slot* slot = TakeFree();
      absl::Status status;
      {
        HostRegistry& registry = HostRegistry::Process();
        absl::ReaderMutexLock lock(&registry.mutex());
        status = slot->staging->Start(*job.work, piece, registry.ranges());
      }
      absl::MutexLock lock(&mutex);
      if (!status.ok()) {
        PushFree(slot);
        return status;
      }
      ++job.pieces_in_work;
      Follow(slot, &job);
    }
    return absl::OkStatus();
  }

  void Follow(Slot* slot, Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    slot->job = job;
    slot->next = nullptr;
    (busy_tail == nullptr ? busy_head : busy_tail->next) = slot;
    busy_tail = slot;
  }

  // The finisher's thread.
  void FinishPieces() {
    while (Slot* slot = NextBusy()) {
      const absl::StatusOr<double> seconds = slot->staging->Finish();
      Job& job = *slot->job;
      bool ended = false;
      {
        absl::MutexLock lock(&mutex);
        Note(job, seconds.status());
        job.seconds += seconds.ok() ? *seconds : 0;
        PushFree(slot);
        ended = --job.pieces_in_work == 0 && job.all_started;
      }
      if (ended) {
        End(job);
      }
    }
  }

  Slot* NextBusy() {
    absl::MutexLock lock(&mutex);
    const auto has_busy = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex) {
      return busy_head != nullptr || stopping;
    };
    mutex.Await(absl::Condition(&has_busy));
    Slot* slot = busy_head;
    if (slot != nullptr) {
      busy_head = slot->next;
      busy_tail = busy_head == nullptr ? nullptr : busy_tail;
    }
    return slot;
  }

  // The first error of a chunk counts; one that loses the GPU counts for all that follow.
  void Note(Job& job, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    job.status.Update(status);
    NoteLoss(status);
  }

  void NoteLoss(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (absl::IsUnavailable(status) && lost.ok()) {
      lost = status;
      on_lost(status);
    }
  }

  device::DeviceMemoryUse MemoryUse() {
    device::DeviceMemoryUse use = memory_use;
    absl::MutexLock lock(&mutex);
    uint64_t used = slots.size();
    for (const Slot* slot = free_slots; slot != nullptr; slot = slot->next) {
      --used;
    }
    use.staging_used_bytes = used * (use.staging_bytes / slots.size());
    return use;
  }

  void End(Job& job) {
    ChunkWork* work = job.work;
    absl::Status status = std::exchange(job.status, absl::OkStatus());
    work->seconds = job.seconds;
    {
      absl::MutexLock lock(&mutex);
      idle_jobs.push_back(&job);
    }
    work->done(work, std::move(status));
    absl::MutexLock lock(&mutex);
    --outstanding;
  }

  const Gpu identity;
  const CudaDeviceOptions options;
  std::string description;
  device::DeviceMemoryUse memory_use;
  const Context context;  // of all that follows
  CudaMemoryImporter importer{context};
  WatchedImporter watched_importer{importer, [this](const absl::Status& status) {
                                     absl::MutexLock lock(&mutex);
                                     NoteLoss(status);
                                   }};
  std::optional<KernelModules> kernels;
  DeviceMemory staging;
  SlotLimits limits;

  absl::Mutex mutex;
  std::vector<Slot> slots;
  std::vector<Job> jobs;
  std::vector<Job*> idle_jobs ABSL_GUARDED_BY(mutex);
  Slot* free_slots ABSL_GUARDED_BY(mutex) = nullptr;
  Slot* busy_head ABSL_GUARDED_BY(mutex) = nullptr;
  Slot* busy_tail ABSL_GUARDED_BY(mutex) = nullptr;
  void* waiting_head ABSL_GUARDED_BY(mutex) = nullptr;
  ChunkWork* waiting_tail ABSL_GUARDED_BY(mutex) = nullptr;
  uint64_t outstanding ABSL_GUARDED_BY(mutex) = 0;
  absl::Status lost ABSL_GUARDED_BY(mutex);
  std::function<void(const absl::Status&)> on_lost ABSL_GUARDED_BY(mutex) =
      [](const absl::Status&) {};
  bool stopping ABSL_GUARDED_BY(mutex) = false;

  std::thread starter;
  std::thread finisher;
};

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const Driver& driver, CUdevice gpu,
                                                               const Gpu& identity,
                                                               const CudaDeviceOptions& options) {
  if (options.slots < 1) {
    return absl::InvalidArgumentError("a GPU needs one staging slot at least");
  }
  const std::optional<uint64_t> used_before = State::UsedBytes(identity.uuid);
  MOMENT_ASSIGN_OR_RETURN(Context context, Context::Retain(driver, gpu));
  auto state = std::make_unique<State>(std::move(context), identity, options);
  MOMENT_RETURN_IF_ERROR(state->Prepare(used_before));
  return std::unique_ptr<CudaDevice>(new CudaDevice(std::move(state)));
}

CudaDevice::CudaDevice(std::unique_ptr<State> state) : state_(std::move(state)) {}

CudaDevice::~CudaDevice() = default;

const std::string& CudaDevice::name() const { return state_->identity.uuid; }

std::string CudaDevice::Describe() const { return state_->description; }

bool CudaDevice::Supports(device::Profile profile) const { return HasKernels(profile); }

int CudaDevice::concurrency() const { return state_->options.slots; }

void CudaDevice::Submit(ChunkWork* work) { state_->Submit(work); }

void CudaDevice::OnLost(std::function<void(const absl::Status&)> lost) {
  absl::MutexLock lock(&state_->mutex);
  state_->on_lost = std::move(lost);
}

std::optional<device::DeviceMemoryUse> CudaDevice::MemoryUse() const { return state_->MemoryUse(); }

absl::Status CudaDevice::RegisterMemory(std::span<std::byte> memory) {
  absl::Status status = HostRegistry::Process().Register(state_->context, memory);
  absl::MutexLock lock(&state_->mutex);
  state_->NoteLoss(status);
  return status;
}

void CudaDevice::UnregisterMemory(std::span<std::byte> memory) {
  HostRegistry::Process().Unregister(state_->context, memory);
}

device::MemoryImporter* CudaDevice::importer() { return &state_->watched_importer; }

}  // namespace moment::cuda
