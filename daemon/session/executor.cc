#include "daemon/session/executor.h"

#include <utility>

namespace moment::session {

Executor::Executor() : thread_([this] { Run(); }) {}

Executor::~Executor() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Executor::Post(std::function<void()> job) {
  absl::MutexLock lock(&mutex_);
  jobs_.push_back(std::move(job));
}

void Executor::Run() {
  for (;;) {
    std::function<void()> job;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this] {
        mutex_.AssertReaderHeld();
        return stopping_ || !jobs_.empty();
      };
      mutex_.Await(absl::Condition(&ready));
      if (jobs_.empty()) {
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace moment::session
