#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "daemon/pipeline/pipeline_impl.h"

namespace moment::pipeline {

struct PipelineImpl::Wait {
  // On the loop.
  void Fire(absl::Status result) {
    if (!fired.HasBeenNotified()) {
      status = std::move(result);
      fired.Notify();
    }
  }

  absl::Status status;
  absl::Notification fired;
};

class PipelineImpl::CallScope {
 public:
  CallScope(PipelineImpl& pipeline, const char* activity) : pipeline_(pipeline) {
    pipeline_.current_call_.store(++pipeline_.last_call_);
    absl::MutexLock lock(&pipeline_.mutex_);
    pipeline_.activity_ = activity;
  }
  ~CallScope() {
    pipeline_.current_call_.store(0);
    pipeline_.SweepBehind();
    absl::MutexLock lock(&pipeline_.mutex_);
    pipeline_.activity_ = "idle";
  }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  PipelineImpl& pipeline_;
};

}  // namespace moment::pipeline
