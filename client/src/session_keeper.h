#pragma once

#include <memory>
#include <string>
#include <thread>

#include <grpcpp/client_context.h>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "moment/v1/optimizer.grpc.pb.h"

namespace moment::client {

// Keeps a session alive: holds its stream open and renews the lease three times per lease, on two
// threads of its own (one writes, one reads). Thread-safe.
class SessionKeeper {
 public:
  // Returns when the daemon has accepted the stream.
  static absl::StatusOr<std::unique_ptr<SessionKeeper>> Start(v1::Optimizer::Stub& stub,
                                                              const std::string& session,
                                                              absl::Duration lease);
  ~SessionKeeper();  // cancels the stream and joins both threads

  // False once the stream has ended; the session is over, or about to be.
  bool alive() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Asks the daemon: renews the lease and waits for the answer. False if the session has ended.
  bool Confirm(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_);
  // Why the daemon ended the session; empty if it did not say.
  std::string end_reason() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  SessionKeeper(std::string session, absl::Duration lease);

  void Write() ABSL_LOCKS_EXCLUDED(mutex_);
  void Read() ABSL_LOCKS_EXCLUDED(mutex_);
  void Note(const v1::SessionEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);
  bool WriterDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_ || ended_ || asked_; }

  const std::string session_;
  const absl::Duration lease_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionEvent>> stream_;
  mutable absl::Mutex mutex_;
  bool accepted_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  bool asked_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t renewals_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string end_reason_ ABSL_GUARDED_BY(mutex_);
  std::thread writer_;
  std::thread reader_;
};

}  // namespace moment::client
