#include "daemon/base/worker_pool.h"

#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"

namespace moment::base {

struct WorkerPool::State {
  absl::Mutex mutex;
  Task* head ABSL_GUARDED_BY(mutex) = nullptr;
  Task* tail ABSL_GUARDED_BY(mutex) = nullptr;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
  std::vector<std::thread> threads;

  bool HasWork() const ABSL_SHARED_LOCKS_REQUIRED(mutex) { return head != nullptr || stopping; }

  Task* Take() {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(this, &State::HasWork));
    Task* task = head;
    if (task != nullptr) {
      head = task->next;
      tail = head == nullptr ? nullptr : tail;
    }
    return task;
  }

  void Run() {
    while (Task* task = Take()) {
      task->run(task);
    }
  }
};

WorkerPool::WorkerPool(int threads) : state_(std::make_unique<State>()) {
  for (int i = 0; i < threads; ++i) {
    state_->threads.emplace_back([state = state_.get()] { state->Run(); });
  }
}

WorkerPool::~WorkerPool() {
  {
    absl::MutexLock lock(&state_->mutex);
    state_->stopping = true;
  }
  for (std::thread& thread : state_->threads) {
    thread.join();
  }
}

void WorkerPool::Post(Task* task) {
  task->next = nullptr;
  absl::MutexLock lock(&state_->mutex);
  (state_->tail == nullptr ? state_->head : state_->tail->next) = task;
  state_->tail = task;
}

int WorkerPool::threads() const { return static_cast<int>(state_->threads.size()); }

}  // namespace moment::base
