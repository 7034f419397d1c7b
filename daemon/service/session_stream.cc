#include "daemon/service/session_stream.h"

#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "daemon/service/status.h"

namespace moment::service {
namespace {

// Runs on gRPC's threads; the session's end comes from any thread. Kept alive by itself until
// OnDone, and after it by the callback that the session holds.
class SessionStream : public grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionEvent> {
 public:
  static SessionStream* Start(FindSession find) {
    std::shared_ptr<SessionStream> stream(new SessionStream(std::move(find)));
    stream->self_ = stream;
    stream->StartRead(&stream->request_);
    return stream.get();
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Leave();
      return;
    }
    const absl::Status status = session_ == nullptr ? Accept() : Renew();
    if (!status.ok()) {
      Stop(status);
      return;
    }
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    events_.pop_front();
    if (!ok) {
      events_.clear();
    }
    WriteNext();
  }

  void OnCancel() override { Leave(); }

  void OnDone() override { const std::shared_ptr<SessionStream> last = std::move(self_); }

 private:
  explicit SessionStream(FindSession find) : find_(std::move(find)) {}

  absl::Status Accept() {
    absl::StatusOr<std::shared_ptr<session::Session>> found = find_(request_);
    if (!found.ok()) {
      return found.status();
    }
    const absl::Status attached = (*found)->AttachStream(
        [weak = std::weak_ptr<SessionStream>(self_)](const absl::Status& reason) {
          if (const std::shared_ptr<SessionStream> stream = weak.lock()) {
            stream->SessionEnded(reason);
          }
        });
    if (attached.ok()) {
      session_ = *std::move(found);
      v1::SessionEvent event;
      event.mutable_accepted();
      Send(std::move(event));
    }
    return attached;
  }

  absl::Status Renew() {
    const absl::Status renewed = session_->Renew();
    if (renewed.ok()) {
      v1::SessionEvent event;
      event.mutable_renewed();
      Send(std::move(event));
    }
    return renewed;
  }

  // The client is gone, or closed its side.
  void Leave() {
    Stop(absl::OkStatus());
    std::shared_ptr<session::Session> session;
    {
      absl::MutexLock lock(&mutex_);
      session = left_ ? nullptr : session_;
      left_ = true;
    }
    if (session != nullptr) {
      session->End(absl::FailedPreconditionError("its stream ended"));
    }
  }

  void SessionEnded(const absl::Status& reason) {
    v1::SessionEvent event;
    event.mutable_ended()->set_reason(std::string(reason.message()));
    Send(std::move(event));
    Stop(absl::OkStatus());
  }

  void Send(v1::SessionEvent event) {
    absl::MutexLock lock(&mutex_);
    if (stopping_) {
      return;
    }
    events_.push_back(std::move(event));
    WriteNext();
  }

  // Finishes after what is queued.
  void Stop(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (!stopping_) {
      stopping_ = true;
      status_ = status;
      WriteNext();
    }
  }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (writing_ || finished_) {
      return;
    }
    if (!events_.empty()) {
      writing_ = true;
      StartWrite(&events_.front());
    } else if (stopping_) {
      finished_ = true;
      Finish(ToGrpc(status_));
    }
  }

  const FindSession find_;
  std::shared_ptr<SessionStream> self_;
  v1::SessionRequest request_;                 // of the one read under way
  std::shared_ptr<session::Session> session_;  // set by the first read

  absl::Mutex mutex_;
  std::deque<v1::SessionEvent> events_ ABSL_GUARDED_BY(mutex_);  // the first is being written
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;
  bool left_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

grpc::ServerBidiReactor<v1::SessionRequest, v1::SessionEvent>* StartSessionStream(
    FindSession find) {
  return SessionStream::Start(std::move(find));
}

}  // namespace moment::service
