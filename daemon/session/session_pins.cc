// Pins of a session: made on its executor, read and dropped beside it.
#include <fcntl.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"
#include "daemon/session/session.h"
#include "daemon/store/pin_files.h"

namespace moment::session {
namespace {

std::shared_ptr<const store::PinnedCommit> FindPin(const store::Store& store,
                                                   const std::string& id) {
  for (const std::shared_ptr<const store::PinnedCommit>& pin : store.pins()) {
    if (pin->id == id) {
      return pin;
    }
  }
  return nullptr;
}

void AddSteps(const std::vector<uint64_t>& t, v1::PinResponse& response) {
  for (size_t i = 0; i < t.size(); ++i) {
    v1::TensorSteps* run =
        response.steps_size() == 0 ? nullptr : response.mutable_steps(response.steps_size() - 1);
    if (run == nullptr || run->t() != t[i]) {
      run = response.add_steps();
      run->set_first(static_cast<uint32_t>(i));
      run->set_t(t[i]);
    }
    run->set_count(run->count() + 1);
  }
}

v1::PinnedBucket DescribeBucketFile(const store::Layout& layout, size_t bucket) {
  v1::PinnedBucket described;
  for (const store::SegmentGeometry& segment : layout.buckets()[bucket].segments) {
    v1::PinnedSegment* place = described.add_segments();
    place->set_type(segment.type);
    place->set_offset_bytes(segment.offset);
  }
  *described.mutable_slices() = layout.proto().buckets(static_cast<int>(bucket)).slices();
  return described;
}

absl::StatusOr<base::UniqueFd> Duplicate(const io::File& file) {
  base::UniqueFd fd(::fcntl(file.fd(), F_DUPFD_CLOEXEC, 0));
  if (!fd.valid()) {
    return base::ErrnoStatus(errno, "duplicate the descriptor of", file.path());
  }
  return fd;
}

}  // namespace

absl::StatusOr<v1::PinResponse> Session::Pin(const v1::PinRequest& request) {
  const std::string& id = request.operation();
  MOMENT_RETURN_IF_ERROR(store::CheckPinId(id));
  const absl::StatusOr<v1::Operation> done = RunOperation(
      id, "pin",
      [this] {
        mutex_.AssertReaderHeld();
        return CheckHasState("Pin");
      },
      [this, id](pipeline::StatePipeline& pipeline, Operation& operation) {
        absl::StatusOr<v1::Operation> made = MakePin(pipeline, id);
        operation.Finish(made.status(), made.ok() ? *std::move(made) : v1::Operation());
      });
  MOMENT_RETURN_IF_ERROR(done.status());
  return DescribePin(id);
}

absl::StatusOr<v1::Operation> Session::MakePin(pipeline::StatePipeline& pipeline,
                                               const std::string& id) {
  store::PinParameters parameters;
  parameters.id = id;
  parameters.owner.set_session(options_.id);
  parameters.owner.set_pid(static_cast<uint32_t>(options_.peer.pid));
  parameters.owner.set_uid(options_.peer.uid);
  parameters.owner.set_program(options_.program);
  const absl::StatusOr<std::shared_ptr<const store::PinnedCommit>> pin = pipeline.Pin(parameters);
  absl::MutexLock lock(&mutex_);
  const bool abandoned = abandoned_pins_.erase(id) > 0;
  MOMENT_RETURN_IF_ERROR(pin.status());
  if (abandoned) {
    MOMENT_RETURN_IF_ERROR(pipeline.Unpin(id));
    return absl::CancelledError(absl::StrCat("pin ", id, " was given up while it was made"));
  }
  spdlog::info("event=pin session={} pin={} sequence={} bytes={}", options_.id, id,
               (*pin)->commit.sequence(), (*pin)->size_bytes);
  v1::Operation result;
  result.mutable_pin()->set_pin(id);
  *result.mutable_pin()->mutable_commit() = (*pin)->commit;
  result.mutable_pin()->set_size_bytes((*pin)->size_bytes);
  return result;
}

absl::StatusOr<v1::PinResponse> Session::DescribePin(const std::string& id) const {
  std::shared_ptr<const store::PinnedCommit> pin;
  {
    absl::MutexLock lock(&mutex_);
    MOMENT_RETURN_IF_ERROR(ended_.has_value() ? CheckAlive() : absl::OkStatus());
    pin = FindPin(pipeline_->store(), id);
  }
  if (pin == nullptr) {
    return absl::NotFoundError(absl::StrCat("pin ", id, " was dropped; pin the state again"));
  }
  v1::PinResponse response;
  response.set_pin(id);
  *response.mutable_commit() = pin->commit;
  response.set_size_bytes(pin->size_bytes);
  AddSteps(pin->t, response);
  for (size_t bucket = 0; bucket < pin->layout->buckets().size(); ++bucket) {
    *response.add_buckets() = DescribeBucketFile(*pin->layout, bucket);
  }
  return response;
}

absl::Status Session::Unpin(const v1::UnpinRequest& request) {
  absl::MutexLock lock(&mutex_);
  RenewLease();
  if (ended_.has_value()) {
    return CheckAlive();
  }
  const absl::Status status = pipeline_->Unpin(request.pin());
  if (!absl::IsNotFound(status)) {
    return status;
  }
  const absl::StatusOr<std::shared_ptr<Operation>> making = operations_.Find(request.pin());
  if (making.ok() && (*making)->kind() == "pin" && !(*making)->done()) {
    abandoned_pins_.insert(request.pin());
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> Session::DropPin(const std::string& id) {
  absl::MutexLock lock(&mutex_);
  if (ended_.has_value()) {
    return CheckAlive();
  }
  const std::shared_ptr<const store::PinnedCommit> pin = FindPin(pipeline_->store(), id);
  const uint64_t held_bytes = pin == nullptr ? 0 : pipeline_->store().HeldBytes(*pin);
  MOMENT_RETURN_IF_ERROR(pipeline_->Unpin(id));
  spdlog::info("event=pin_dropped session={} pin={} by=operator", options_.id, id);
  return held_bytes;
}

absl::StatusOr<std::vector<base::UniqueFd>> Session::PinDescriptors(const std::string& id,
                                                                    uint32_t first,
                                                                    uint32_t count) const {
  absl::MutexLock lock(&mutex_);
  MOMENT_RETURN_IF_ERROR(ended_.has_value() ? CheckAlive() : absl::OkStatus());
  MOMENT_ASSIGN_OR_RETURN(const std::vector<std::unique_ptr<io::File>> files,
                          pipeline_->store().OpenPinned(id, first, count));
  std::vector<base::UniqueFd> descriptors;
  for (const std::unique_ptr<io::File>& file : files) {
    MOMENT_ASSIGN_OR_RETURN(base::UniqueFd descriptor, Duplicate(*file));
    descriptors.push_back(std::move(descriptor));
  }
  return descriptors;
}

// On the executor, when the session is over.
void Session::DropAllPins() {
  for (const std::shared_ptr<const store::PinnedCommit>& pin : pipeline_->store().pins()) {
    if (const absl::Status status = pipeline_->Unpin(pin->id);
        !status.ok() && !absl::IsNotFound(status)) {
      spdlog::warn("event=unpin session={} pin={} error={}", options_.id, pin->id,
                   base::Quoted(status.message()));
    }
  }
}

}  // namespace moment::session
