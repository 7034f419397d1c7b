#pragma once

#include <functional>
#include <memory>

namespace moment::base {

// A fixed number of threads that run what is posted, oldest first. Thread-safe.
// Tasks are intrusive so that posting allocates nothing: the caller owns the Task until run
// returns.
class WorkerPool {
 public:
  struct Task {
    void (*run)(Task*) noexcept = nullptr;
    Task* next = nullptr;  // the pool's
  };

  explicit WorkerPool(int threads);
  ~WorkerPool();  // waits for what was posted
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void Post(Task* task);
  int threads() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moment::base
