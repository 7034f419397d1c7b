#include "daemon/io/simulated_state.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/io/simulated_file_system.h"
#include "daemon/io/transfer_progress.h"

namespace moment::io {
namespace {

SimulatedTree TreeAfterCrash(const SimulatedTree& tree, uint64_t choice) {
  CrashChooser chooser(choice);
  return tree.AfterCrash(chooser);
}

}  // namespace

SimulatedState::SimulatedState(const SimulatedFaults& given, SimulatedTree tree)
    : faults(given), random_(given.seed), tree_(std::move(tree)) {}

std::shared_ptr<SimulatedState> SimulatedState::AfterCrash(uint64_t choice) const {
  absl::MutexLock lock(&mutex);
  return std::make_shared<SimulatedState>(faults, TreeAfterCrash(tree_, choice));
}

absl::Status SimulatedState::CheckPower() const {
  return power_off_ ? absl::UnavailableError("power is off") : absl::OkStatus();
}

absl::Status SimulatedState::Count() {
  if (cut_before_ != 0 && operations_ + 1 >= cut_before_) {
    power_off_ = true;
  }
  MOMENT_RETURN_IF_ERROR(CheckPower());
  ++operations_;
  return absl::OkStatus();
}

absl::Status SimulatedState::CheckRoom(uint64_t more_bytes, const std::string& path) const {
  if (more_bytes == 0 || faults.capacity_bytes == UINT64_MAX) {
    return absl::OkStatus();
  }
  const uint64_t used = tree_.allocated_bytes();
  const bool fits = used <= faults.capacity_bytes && more_bytes <= faults.capacity_bytes - used;
  return fits ? absl::OkStatus() : base::ErrnoStatus(ENOSPC, "write", path);
}

absl::Status SimulatedState::DrawFailure(const Transfer& transfer) {
  for (auto failure = failures_.begin(); failure != failures_.end(); ++failure) {
    if (failure->op == transfer.op &&
        absl::StrContains(transfer.file->path(), failure->substring)) {
      absl::Status status = std::move(failure->status);
      failures_.erase(failure);
      return status;
    }
  }
  double odds = faults.sync_error;
  if (transfer.op != IoOp::kSync) {
    odds = transfer.op == IoOp::kRead ? faults.read_error : faults.write_error;
  }
  return random_.Chance(odds) ? TransferError(transfer, EIO) : absl::OkStatus();
}

absl::Status SimulatedState::Move(const Transfer& transfer, uint64_t length) {
  const auto* opened = dynamic_cast<const SimulatedFile*>(transfer.file);
  if (opened == nullptr || !opened->IsOf(*this)) {
    return absl::InvalidArgumentError(
        absl::StrCat(transfer.file->path(), ": not opened from this simulated disk"));
  }
  const SimulatedFile& file = *opened;
  absl::MutexLock lock(&mutex);
  MOMENT_RETURN_IF_ERROR(CheckPower());
  switch (transfer.op) {
    case IoOp::kRead:
      return Read(transfer, file, length);
    case IoOp::kWrite:
      return Write(transfer, file, length);
    case IoOp::kSync:
      break;
  }
  return Sync(transfer, file);
}

absl::Status SimulatedState::Read(const Transfer& transfer, const SimulatedFile& file,
                                  uint64_t length) {
  MOMENT_RETURN_IF_ERROR(DrawFailure(transfer));
  const SimulatedContent& content = file.inode().content;
  const uint64_t offset = transfer.offset + transfer.progress;
  if (offset + length > content.size()) {
    // The bytes that exist arrive, as they do from the kernel.
    const uint64_t end = std::max(offset, content.size());
    content.Read(offset, {transfer.data + transfer.progress, end - offset});
    return EndOfFileError(transfer, end);
  }
  content.Read(offset, {transfer.data + transfer.progress, length});
  return absl::OkStatus();
}

absl::Status SimulatedState::Write(const Transfer& transfer, const SimulatedFile& file,
                                   uint64_t length) {
  if (!file.writable()) {
    return TransferError(transfer, EBADF);
  }
  MOMENT_RETURN_IF_ERROR(Count());
  MOMENT_RETURN_IF_ERROR(DrawFailure(transfer));
  SimulatedContent& content = file.inode().content;
  const uint64_t offset = transfer.offset + transfer.progress;
  MOMENT_RETURN_IF_ERROR(CheckRoom(content.MissingBytes(offset, length), file.path()));
  content.Write(offset, {transfer.data + transfer.progress, length});
  return absl::OkStatus();
}

absl::Status SimulatedState::Sync(const Transfer& transfer, const SimulatedFile& file) {
  MOMENT_RETURN_IF_ERROR(Count());
  SimulatedInode& inode = file.inode();
  if (absl::Status failure = DrawFailure(transfer); !failure.ok()) {
    inode.content.FailSync();
    return failure;
  }
  inode.content.Sync();
  inode.durable_permissions = inode.permissions;
  return absl::OkStatus();
}

uint64_t SimulatedState::operations() const {
  absl::MutexLock lock(&mutex);
  return operations_;
}

bool SimulatedState::power_is_off() const {
  absl::MutexLock lock(&mutex);
  return power_off_;
}

uint64_t SimulatedState::unsynced_changes() const {
  absl::MutexLock lock(&mutex);
  return tree_.unsynced_changes();
}

void SimulatedState::CutPowerBefore(uint64_t operation) {
  absl::MutexLock lock(&mutex);
  cut_before_ = operation;
}

void SimulatedState::RestorePower() {
  absl::MutexLock lock(&mutex);
  cut_before_ = 0;
  power_off_ = false;
}

void SimulatedState::FailNext(IoOp op, const std::string& substring, absl::Status status) {
  absl::MutexLock lock(&mutex);
  failures_.push_back({op, substring, std::move(status)});
}

}  // namespace moment::io
