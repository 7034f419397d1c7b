#include "daemon/pipeline/committer.h"

#include <utility>

namespace moment::pipeline {

Committer::Committer() : thread_([this] { Main(); }) {}

Committer::~Committer() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void Committer::Post(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  work_.push_back(std::move(work));
}

void Committer::Main() {
  for (;;) {
    std::function<void()> work;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &Committer::HasWork));
      if (work_.empty()) {
        return;
      }
      work = std::move(work_.front());
      work_.pop_front();
    }
    work();
  }
}

}  // namespace moment::pipeline
