#include "daemon/io/transfer_progress.h"

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/failpoint.h"
#include "daemon/base/memory.h"

namespace moment::io {
namespace {

// Moves in a row without progress (EINTR, EAGAIN, or less than one aligned block).
constexpr uint32_t kMaxAttempts = 1000;

const char* OpName(IoOp op) {
  switch (op) {
    case IoOp::kRead:
      return "read";
    case IoOp::kWrite:
      return "write";
    case IoOp::kSync:
      break;
  }
  return "sync";
}

std::string Place(const Transfer& transfer) {
  if (transfer.op == IoOp::kSync) {
    return transfer.file->path();
  }
  return absl::StrCat(transfer.file->path(), " at offset ", transfer.offset + transfer.progress);
}

NextMove Finish(absl::Status result, absl::Status* status) {
  *status = std::move(result);
  return NextMove::kFinished;
}

// One more attempt without progress; false when there were too many.
bool MayTryAgain(Transfer* transfer) { return ++transfer->attempts < kMaxAttempts; }

NextMove AfterError(Transfer* transfer, int error, absl::Status* status) {
  if ((error == EINTR || error == EAGAIN) && MayTryAgain(transfer)) {
    return NextMove::kAgain;
  }
  return Finish(TransferError(*transfer, error), status);
}

absl::Status NothingMoved(const Transfer& transfer) {
  if (transfer.op == IoOp::kRead) {
    return EndOfFileError(transfer, transfer.offset + transfer.progress);
  }
  return absl::InternalError(
      absl::StrCat("write ", Place(transfer), ": the system wrote nothing and named no error"));
}

// A direct move ended inside the block at transfer->progress, `odd_bytes` into it.
NextMove AfterOddEnd(Transfer* transfer, uint64_t odd_bytes, absl::Status* status) {
  if (transfer->op == IoOp::kRead) {
    const absl::StatusOr<uint64_t> size = transfer->file->Size();
    if (size.ok() && transfer->offset + transfer->progress + odd_bytes >= *size) {
      return Finish(EndOfFileError(*transfer, *size), status);
    }
  }
  if (MayTryAgain(transfer)) {
    return NextMove::kAgain;
  }
  return Finish(absl::InternalError(absl::StrCat(OpName(transfer->op), " ", Place(*transfer),
                                                 ": the system never moves a whole block")),
                status);
}

}  // namespace

absl::Status CheckAlignment(const Transfer& transfer) {
  if (!transfer.file->direct() || transfer.op == IoOp::kSync) {
    return absl::OkStatus();
  }
  const uint64_t address = reinterpret_cast<uint64_t>(transfer.data);
  if ((address | transfer.offset | transfer.length) % base::kIoAlignment == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      OpName(transfer.op), " ", transfer.file->path(), " at offset ", transfer.offset, ", length ",
      transfer.length, ": direct I/O needs address, offset and length in multiples of ",
      base::kIoAlignment));
}

absl::Status CheckBeforeMove(const Transfer& transfer) {
  constexpr const char* kFailpoints[] = {"io.read", "io.write", "io.sync"};
  MOMENT_RETURN_IF_ERROR(CheckAlignment(transfer));
  return base::WithContext(base::Failpoint(kFailpoints[static_cast<size_t>(transfer.op)]),
                           absl::StrCat(OpName(transfer.op), " ", Place(transfer)));
}

absl::Status TransferError(const Transfer& transfer, int error) {
  absl::Status status = base::ErrnoStatus(error, OpName(transfer.op), Place(transfer));
  return error == ECANCELED ? absl::CancelledError(status.message()) : status;
}

absl::Status EndOfFileError(const Transfer& transfer, uint64_t end_offset) {
  return absl::DataLossError(absl::StrCat(
      "read ", transfer.file->path(), " at offset ", end_offset, ": the file ends before this, ",
      transfer.offset + transfer.length - end_offset, " bytes are missing"));
}

NextMove Advance(Transfer* transfer, uint64_t piece_bytes, int64_t result, absl::Status* status) {
  if (result < 0) {
    return AfterError(transfer, static_cast<int>(-result), status);
  }
  if (transfer->op == IoOp::kSync) {
    return Finish(absl::OkStatus(), status);
  }
  const auto moved = static_cast<uint64_t>(result);
  if (moved == 0) {
    return Finish(NothingMoved(*transfer), status);
  }
  if (moved > piece_bytes) {
    return Finish(absl::InternalError(absl::StrCat(OpName(transfer->op), " ", Place(*transfer),
                                                   ": the system moved more than asked")),
                  status);
  }
  const uint64_t odd_bytes = transfer->file->direct() ? moved % base::kIoAlignment : 0;
  if (moved > odd_bytes) {
    transfer->progress += moved - odd_bytes;
    transfer->attempts = 0;
  }
  if (odd_bytes > 0) {
    return AfterOddEnd(transfer, odd_bytes, status);
  }
  return transfer->progress == transfer->length ? Finish(absl::OkStatus(), status)
                                                : NextMove::kAgain;
}

}  // namespace moment::io
