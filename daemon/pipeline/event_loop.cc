#include "daemon/pipeline/event_loop.h"

#include <memory>
#include <utility>

#include "absl/synchronization/notification.h"

namespace moment::pipeline {
namespace {

struct FunctionEvent : Event {
  std::function<void()> work;
};

void RunFunction(Event* event) noexcept {
  std::unique_ptr<FunctionEvent> owned(static_cast<FunctionEvent*>(event));
  owned->work();
}

}  // namespace

EventLoop::EventLoop(std::function<void()> after_batch)
    : after_batch_(std::move(after_batch)), thread_([this] { Main(); }) {}

EventLoop::~EventLoop() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  thread_.join();
}

void EventLoop::Post(Event* event) {
  event->next = nullptr;
  absl::MutexLock lock(&mutex_);
  (tail_ == nullptr ? head_ : tail_->next) = event;
  tail_ = event;
}

void EventLoop::PostFunction(std::function<void()> work) {
  auto event = std::make_unique<FunctionEvent>();
  event->run = RunFunction;
  event->work = std::move(work);
  Post(event.release());
}

void EventLoop::RunAndWait(const std::function<void()>& work) {
  absl::Notification done;
  PostFunction([&] {
    work();
    done.Notify();
  });
  done.WaitForNotification();
}

void EventLoop::Main() {
  for (;;) {
    Event* batch = nullptr;
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(this, &EventLoop::HasWork));
      batch = std::exchange(head_, nullptr);
      tail_ = nullptr;
    }
    if (batch == nullptr) {
      return;
    }
    while (batch != nullptr) {
      Event* event = std::exchange(batch, batch->next);
      event->run(event);
    }
    after_batch_();
  }
}

}  // namespace moment::pipeline
