// Pins of a pipeline's store, and the sweeps that follow.
#include <spdlog/spdlog.h>

#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"
#include "daemon/pipeline/pipeline_impl.h"
#include "daemon/pipeline/pipeline_wait.h"

namespace moment::pipeline {

absl::StatusOr<std::shared_ptr<const store::PinnedCommit>> PipelineImpl::Pin(
    const store::PinParameters& parameters) {
  CallScope scope(*this, "pin");
  MOMENT_RETURN_IF_ERROR(CheckReady(/*needs_memory=*/false, /*needs_state=*/true));
  MOMENT_RETURN_IF_ERROR(CommitApplied(/*due=*/false, /*abortable=*/true));
  return store_->Pin(parameters);
}

absl::Status PipelineImpl::Unpin(const std::string& id) {
  MOMENT_RETURN_IF_ERROR(store_->Unpin(id));
  SweepBehind();
  return absl::OkStatus();
}

void PipelineImpl::SweepBehind() {
  if (!store_->wants_sweep() || sweep_posted_.exchange(true)) {
    return;
  }
  sweeper_->Post([this] {
    sweep_posted_.store(false);
    if (const absl::Status status = store_->Sweep(); !status.ok()) {
      spdlog::warn("event=sweep store={} error={}", base::Quoted(store_->directory()),
                   base::Quoted(status.message()));
    }
  });
}

}  // namespace moment::pipeline
