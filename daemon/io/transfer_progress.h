#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "daemon/io/io_engine.h"

namespace moment::io {

// One system call or ring entry moves at most this much: the kernel stops a little below 2 GiB, and
// a ring entry's length has 32 bits.
inline constexpr uint64_t kMaxPieceBytes = uint64_t{1} << 30;

// INVALID_ARGUMENT when the file is direct and the address, offset or length is no multiple of
// kIoAlignment. The kernel accepts 512 on many disks and refuses it on others; the engines refuse
// it everywhere, so that a mistake does not wait for the other disk.
absl::Status CheckAlignment(const Transfer& transfer);

// What an engine of the system asks before a transfer's first move: its alignment, and the
// failpoints io.read, io.write and io.sync, by whose sleep a test has a slow device.
absl::Status CheckBeforeMove(const Transfer& transfer);

// "read <path> at offset <n>: <system text>"; CANCELLED for ECANCELED.
absl::Status TransferError(const Transfer& transfer, int error);

// DATA_LOSS: of what was asked for, the bytes from `end_offset` on do not exist.
absl::Status EndOfFileError(const Transfer& transfer, uint64_t end_offset);

enum class NextMove : uint8_t { kFinished, kAgain };

// Takes the result of one move (bytes, or a negative errno) of at most `piece_bytes` starting at
// transfer->progress, and says what follows: finished with `*status`, or another move from the
// updated transfer->progress. On a direct file progress stays aligned: the odd end of a short move
// is moved again. Nothing is retried for ever.
NextMove Advance(Transfer* transfer, uint64_t piece_bytes, int64_t result, absl::Status* status);

}  // namespace moment::io
