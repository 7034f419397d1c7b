#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/fd.h"

// Whether two processes of this machine can share memory of a GPU: one makes a piece and fills it,
// the other opens it, compares it and writes an answer, which the first compares.
namespace moment::cuda {

enum class Sharing : uint8_t {
  kHandle,      // a legacy IPC handle
  kDescriptor,  // a VMM allocation by its descriptor
};

class SharedPiece {
 public:
  virtual ~SharedPiece() = default;

  virtual const std::string& handle() const = 0;  // 64 bytes; "" with kDescriptor
  virtual int fd() const = 0;                     // -1 with kHandle
  // DATA_LOSS if it does not hold the other process's answer.
  virtual absl::Status CheckAnswer() = 0;
};

// Makes a context on the GPU. Errors are the driver's.
absl::StatusOr<std::unique_ptr<SharedPiece>> MakeSharedPiece(const std::string& uuid,
                                                             Sharing sharing);

// The other process's part; of `handle` and `descriptor` the one that there is. DATA_LOSS if the
// piece does not hold what its maker wrote.
absl::Status AnswerSharedPiece(const std::string& uuid, const std::string& handle,
                               base::UniqueFd descriptor);

}  // namespace moment::cuda
