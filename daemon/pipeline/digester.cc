#include "daemon/pipeline/digester.h"

#include <utility>

namespace moment::pipeline {

Digester::Digester(const ChunkPlan& plan, base::WorkerPool& workers, EventLoop& loop,
                   Lanes::Listener& listener)
    : plan_(plan), workers_(workers), loop_(loop), listener_(listener) {
  task_.digester = this;
  task_.run = RunTask;
  event_.run = OnEvent;
  event_.context = this;
}

void Digester::Start(TensorDigests& digests, const Frame& frame) {
  digests_ = &digests;
  frame_ = &frame;
  workers_.Post(&task_);
}

void Digester::RunTask(base::WorkerPool::Task* task) noexcept {
  Digester& self = *static_cast<Task*>(task)->digester;
  const Frame& frame = *self.frame_;
  self.digests_->Add(self.plan_.chunks()[frame.chunk], frame.data, frame.moments_zero);
  self.loop_.Post(&self.event_);
}

void Digester::OnEvent(Event* event) noexcept {
  auto* self = static_cast<Digester*>(event->context);
  const uint32_t chunk = std::exchange(self->frame_, nullptr)->chunk;
  self->listener_.OnPartComputed(chunk, 0);
  self->listener_.OnPartSent(chunk);
}

}  // namespace moment::pipeline
