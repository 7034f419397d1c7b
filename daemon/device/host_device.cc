#include "daemon/device/host_device.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "daemon/base/failpoint.h"
#include "daemon/device/chunk_piece.h"

namespace moment::device {
namespace {

using Clock = std::chrono::steady_clock;

// Large enough that taking one costs nothing beside it, small enough that a chunk of 48 MiB keeps
// many threads busy to its end; a multiple of every vector.
constexpr uint64_t kPieceElements = uint64_t{1} << 16;

}  // namespace

struct HostDevice::State {
  struct Job;

  struct Task : base::WorkerPool::Task {
    Job* job = nullptr;
  };

  // One chunk in work. Its tasks take pieces until none is left; the last to leave ends it.
  struct Job {
    State* device = nullptr;
    ChunkWork* work = nullptr;
    absl::Status status;
    uint64_t pieces = 0;
    std::atomic<uint64_t> next_piece{0};
    std::atomic<int> active_tasks{0};
    Clock::time_point begin;
    std::vector<Task> tasks;  // one a thread of the pool
  };

  State(base::WorkerPool& pool, const HostDeviceOptions& device_options)
      : workers(pool),
        options(device_options),
        jobs(static_cast<size_t>(std::max(options.concurrency, 1))) {
    for (Job& job : jobs) {
      job.device = this;
      job.tasks.resize(static_cast<size_t>(std::max(workers.threads(), 1)));
      for (Task& task : job.tasks) {
        task.job = &job;
        task.run = [](base::WorkerPool::Task* self) noexcept {
          RunTask(*static_cast<Task*>(self)->job);
        };
      }
      idle.push_back(&job);
    }
  }

  ~State() {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(
        +[](uint64_t* count) { return *count == 0; }, &outstanding));
  }

  void Submit(ChunkWork* work) {
    Job* job = nullptr;
    {
      absl::MutexLock lock(&mutex);
      ++outstanding;
      if (idle.empty()) {
        Enqueue(work);
        return;
      }
      job = idle.back();
      idle.pop_back();
    }
    Start(*job, work);
  }

  // ChunkWork::state links what waits.
  void Enqueue(ChunkWork* work) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    work->state = nullptr;
    (waiting_tail == nullptr ? waiting_head : waiting_tail->state) = work;
    waiting_tail = work;
  }

  ChunkWork* Dequeue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    auto* work = static_cast<ChunkWork*>(waiting_head);
    if (work != nullptr) {
      waiting_head = work->state;
      waiting_tail = waiting_head == nullptr ? nullptr : waiting_tail;
    }
    return work;
  }

  void Start(Job& job, ChunkWork* work) {
    job.work = work;
    job.status = CheckLost();
    job.status.Update(CheckWork(*work));
    job.pieces = job.status.ok() ? (work->elements + kPieceElements - 1) / kPieceElements : 0;
    job.next_piece.store(0, std::memory_order_relaxed);
    job.begin = Clock::now();
    const size_t tasks = std::clamp<size_t>(job.pieces, 1, job.tasks.size());
    job.active_tasks.store(static_cast<int>(tasks), std::memory_order_release);
    for (size_t i = 0; i < tasks; ++i) {
      workers.Post(&job.tasks[i]);
    }
  }

  absl::Status CheckLost() {
    if (const absl::Status planted = base::Failpoint("device.lost");
        !planted.ok() && !is_lost.exchange(true)) {
      on_lost(absl::UnavailableError(planted.message()));
    }
    return is_lost ? absl::UnavailableError("the device is lost for this process, restart it")
                   : absl::OkStatus();
  }

  static void RunTask(Job& job) {
    const ChunkWork& work = *job.work;
    uint64_t piece = job.next_piece.fetch_add(1, std::memory_order_relaxed);
    while (piece < job.pieces) {
      const uint64_t begin = piece * kPieceElements;
      RunPiece(work, job.device->options.instruction_set, begin,
               std::min(begin + kPieceElements, work.elements));
      piece = job.next_piece.fetch_add(1, std::memory_order_relaxed);
    }
    if (job.active_tasks.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      job.device->Finish(job);
    }
  }

  void Finish(Job& job) {
    ChunkWork* work = job.work;
    absl::Status status = std::exchange(job.status, absl::OkStatus());
    work->seconds = std::chrono::duration<double>(Clock::now() - job.begin).count();
    ChunkWork* next = nullptr;
    {
      absl::MutexLock lock(&mutex);
      next = Dequeue();
      if (next == nullptr) {
        idle.push_back(&job);
      }
    }
    if (next != nullptr) {
      Start(job, next);
    }
    work->done(work, std::move(status));
    absl::MutexLock lock(&mutex);
    --outstanding;
  }

  base::WorkerPool& workers;
  const HostDeviceOptions options;
  const std::string name = "host";
  std::function<void(const absl::Status&)> on_lost = [](const absl::Status&) {};
  std::atomic<bool> is_lost{false};
  std::vector<Job> jobs;

  absl::Mutex mutex;
  std::vector<Job*> idle ABSL_GUARDED_BY(mutex);
  void* waiting_head ABSL_GUARDED_BY(mutex) = nullptr;
  ChunkWork* waiting_tail ABSL_GUARDED_BY(mutex) = nullptr;
  uint64_t outstanding ABSL_GUARDED_BY(mutex) = 0;
};

HostDevice::HostDevice(base::WorkerPool& workers, const HostDeviceOptions& options)
    : state_(std::make_unique<State>(workers, options)) {}

HostDevice::~HostDevice() = default;

const std::string& HostDevice::name() const { return state_->name; }

std::string HostDevice::Describe() const {
  return absl::StrCat("host: ", Name(state_->options.instruction_set), ", ",
                      state_->workers.threads(), " threads");
}

bool HostDevice::Supports(Profile profile) const {
  return profile == Profile::kTorchCpu || profile == Profile::kTorchCpuIeee;
}

int HostDevice::concurrency() const { return static_cast<int>(state_->jobs.size()); }

void HostDevice::Submit(ChunkWork* work) { state_->Submit(work); }

void HostDevice::OnLost(std::function<void(const absl::Status&)> lost) {
  state_->on_lost = std::move(lost);
}

}  // namespace moment::device
