#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

// One long call under way or done: several callers can wait for it. Set by the session's executor,
// read by any thread.
class Operation {
 public:
  Operation(std::string id, std::string kind) : id_(std::move(id)), kind_(std::move(kind)) {}

  const std::string& id() const { return id_; }
  const std::string& kind() const { return kind_; }

  // A step's bucket whose parameters are final.
  void AddFinalBucket(uint32_t bucket);
  // Runs once. `result` is kept for whoever asks later.
  void Finish(absl::Status status, v1::Operation result = {}, v1::StepDone step = {});

  // What came after the first `seen` final buckets, as soon as there is any, or the end.
  struct Progress {
    std::vector<uint32_t> final_buckets;
    bool done = false;
  };
  Progress WaitBeyond(size_t seen) const;
  absl::Status Wait() const;

  bool done() const;
  // After the end.
  v1::StepDone step() const;
  // At any time, as GetOperation answers.
  v1::Operation Describe() const;
  // Bytes of what is kept for whoever asks later.
  uint64_t result_bytes() const;

 private:
  const std::string id_;
  const std::string kind_;
  mutable absl::Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  v1::Operation result_ ABSL_GUARDED_BY(mutex_);
  v1::StepDone step_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint32_t> final_buckets_ ABSL_GUARDED_BY(mutex_);
};

// The operations of one session by their ids; old finished ones are forgotten, sooner if their
// results are large. Not thread-safe.
class OperationTable {
 public:
  // nullptr if it is not known; INVALID_ARGUMENT if it is of another kind, or the id is unfit.
  absl::StatusOr<std::shared_ptr<Operation>> Find(const std::string& id,
                                                  const std::string& kind) const;
  absl::StatusOr<std::shared_ptr<Operation>> Find(const std::string& id) const;  // or NOT_FOUND
  void Add(std::shared_ptr<Operation> operation);

 private:
  void ForgetOldest();
  uint64_t ResultBytes() const;

  absl::flat_hash_map<std::string, std::shared_ptr<Operation>> operations_;
  std::deque<std::string> order_;  // oldest first
};

}  // namespace moment::session
