#include "daemon/session/operation.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace moment::session {
namespace {

constexpr size_t kMaxIdBytes = 128;
constexpr size_t kRemembered = 64;
// The digests of 100,000 tensors take 5 MB.
constexpr uint64_t kRememberedBytes = uint64_t{16} << 20;

}  // namespace

void Operation::AddFinalBucket(uint32_t bucket) {
  absl::MutexLock lock(&mutex_);
  final_buckets_.push_back(bucket);
}

void Operation::Finish(absl::Status status, v1::Operation result, v1::StepDone step) {
  absl::MutexLock lock(&mutex_);
  status_ = std::move(status);
  result_ = std::move(result);
  step_ = std::move(step);
  done_ = true;
}

Operation::Progress Operation::WaitBeyond(size_t seen) const {
  absl::MutexLock lock(&mutex_);
  const auto ready = [this, seen] {
    mutex_.AssertReaderHeld();
    return done_ || final_buckets_.size() > seen;
  };
  mutex_.Await(absl::Condition(&ready));
  return {{final_buckets_.begin() + static_cast<ptrdiff_t>(seen), final_buckets_.end()}, done_};
}

absl::Status Operation::Wait() const {
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(&done_));
  return status_;
}

bool Operation::done() const {
  absl::MutexLock lock(&mutex_);
  return done_;
}

v1::StepDone Operation::step() const {
  absl::MutexLock lock(&mutex_);
  return step_;
}

v1::Operation Operation::Describe() const {
  absl::MutexLock lock(&mutex_);
  v1::Operation description = result_;
  description.set_operation(id_);
  description.set_kind(kind_);
  description.set_done(done_);
  if (!status_.ok()) {
    description.set_error_code(static_cast<int32_t>(status_.code()));
    description.set_error_message(std::string(status_.message()));
  }
  return description;
}

uint64_t Operation::result_bytes() const {
  absl::MutexLock lock(&mutex_);
  return result_.ByteSizeLong();
}

absl::StatusOr<std::shared_ptr<Operation>> OperationTable::Find(const std::string& id,
                                                                const std::string& kind) const {
  if (id.empty() || id.size() > kMaxIdBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the operation id of ", kind, " has ", id.size(),
                                                   " bytes; it must have 1 to ", kMaxIdBytes));
  }
  const auto found = operations_.find(id);
  if (found == operations_.end()) {
    return nullptr;
  }
  if (found->second->kind() != kind) {
    return absl::InvalidArgumentError(
        absl::StrCat("operation ", id, " is a ", found->second->kind(), ", not a ", kind));
  }
  return found->second;
}

absl::StatusOr<std::shared_ptr<Operation>> OperationTable::Find(const std::string& id) const {
  const auto found = operations_.find(id);
  if (found == operations_.end()) {
    return absl::NotFoundError(
        absl::StrCat("operation ", id, " is not known: it never began, or was forgotten"));
  }
  return found->second;
}

void OperationTable::Add(std::shared_ptr<Operation> operation) {
  order_.push_back(operation->id());
  operations_[operation->id()] = std::move(operation);
  while (order_.size() > kRemembered || (order_.size() > 1 && ResultBytes() > kRememberedBytes)) {
    ForgetOldest();
  }
}

void OperationTable::ForgetOldest() {
  operations_.erase(order_.front());
  order_.pop_front();
}

uint64_t OperationTable::ResultBytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, operation] : operations_) {
    bytes += operation->result_bytes();
  }
  return bytes;
}

}  // namespace moment::session
