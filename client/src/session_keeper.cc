#include "client/src/session_keeper.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/process.h"

namespace moment::client {
namespace {

constexpr absl::Duration kAcceptTimeout = absl::Seconds(30);

}  // namespace

SessionKeeper::SessionKeeper(std::string session, absl::Duration lease)
    : session_(std::move(session)), lease_(lease) {}

absl::StatusOr<std::unique_ptr<SessionKeeper>> SessionKeeper::Start(v1::Optimizer::Stub& stub,
                                                                    const std::string& session,
                                                                    absl::Duration lease) {
  std::unique_ptr<SessionKeeper> keeper(new SessionKeeper(session, lease));
  const SignalsBlocked blocked;
  keeper->stream_ = stub.Session(&keeper->context_);
  keeper->writer_ = std::thread([raw = keeper.get()] { raw->Write(); });
  keeper->reader_ = std::thread([raw = keeper.get()] { raw->Read(); });
  SessionKeeper* raw = keeper.get();
  absl::MutexLock lock(&raw->mutex_);
  const auto settled = [raw]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(raw->mutex_) {
    return raw->accepted_ || raw->ended_;
  };
  raw->mutex_.AwaitWithTimeout(absl::Condition(&settled), kAcceptTimeout);
  if (!raw->accepted_) {
    return absl::UnavailableError(absl::StrCat("the daemon did not accept the session's stream",
                                               raw->end_reason_.empty() ? "" : ": ",
                                               raw->end_reason_));
  }
  return keeper;
}

SessionKeeper::~SessionKeeper() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  context_.TryCancel();
  if (writer_.joinable()) {
    writer_.join();
  }
  if (reader_.joinable()) {
    reader_.join();
  }
}

bool SessionKeeper::alive() const {
  absl::MutexLock lock(&mutex_);
  return !ended_;
}

std::string SessionKeeper::end_reason() const {
  absl::MutexLock lock(&mutex_);
  return end_reason_;
}

bool SessionKeeper::Confirm(absl::Duration timeout) {
  absl::MutexLock lock(&mutex_);
  const uint64_t before = renewals_;
  asked_ = true;
  const auto answered = [this, before]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return ended_ || renewals_ > before;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&answered), timeout);
  return !ended_;
}

void SessionKeeper::Write() {
  v1::SessionRequest request;
  request.set_session(session_);
  while (stream_->Write(request)) {
    absl::MutexLock lock(&mutex_);
    mutex_.AwaitWithTimeout(absl::Condition(this, &SessionKeeper::WriterDue), lease_ / 3);
    asked_ = false;
    if (stop_ || ended_) {
      return;
    }
  }
}

void SessionKeeper::Read() {
  v1::SessionEvent event;
  while (stream_->Read(&event)) {
    Note(event);
  }
  const grpc::Status status = stream_->Finish();
  absl::MutexLock lock(&mutex_);
  ended_ = true;
  if (end_reason_.empty()) {
    end_reason_ = status.error_message();
  }
}

void SessionKeeper::Note(const v1::SessionEvent& event) {
  absl::MutexLock lock(&mutex_);
  if (event.has_accepted()) {
    accepted_ = true;
  } else if (event.has_renewed()) {
    ++renewals_;
  } else if (event.has_ended()) {
    ended_ = true;
    end_reason_ = event.ended().reason();
  }
}

}  // namespace moment::client
