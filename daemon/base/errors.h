#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace moment::base {

// The one place where errno becomes a Status: what was done, to which object, the system's text.
//   ENOSPC, EDQUOT, ENOMEM, EMFILE, ENFILE -> RESOURCE_EXHAUSTED     ENOENT -> NOT_FOUND
//   EEXIST -> ALREADY_EXISTS    EACCES, EPERM, EROFS -> PERMISSION_DENIED
//   EINVAL -> INVALID_ARGUMENT  EIO and the rest -> INTERNAL
absl::Status ErrnoStatus(int error, absl::string_view what, absl::string_view object);

// The same status with "context: " before its message; OK stays OK.
absl::Status WithContext(const absl::Status& status, absl::string_view context);

}  // namespace moment::base

// Returns the Status of `expression` from this function unless it is OK.
#define MOMENT_RETURN_IF_ERROR(expression)                                  \
  do {                                                                      \
    if (absl::Status moment_status_ = (expression); !moment_status_.ok()) { \
      return moment_status_;                                                \
    }                                                                       \
  } while (false)

#define MOMENT_CONCAT_INNER_(a, b) a##b
#define MOMENT_CONCAT_(a, b) MOMENT_CONCAT_INNER_(a, b)

// MOMENT_ASSIGN_OR_RETURN(auto value, StatusOrExpression());
#define MOMENT_ASSIGN_OR_RETURN(declaration, expression)                                  \
  MOMENT_ASSIGN_OR_RETURN_IMPL_(MOMENT_CONCAT_(moment_status_or_, __LINE__), declaration, \
                                expression)
#define MOMENT_ASSIGN_OR_RETURN_IMPL_(status_or, declaration, expression) \
  auto status_or = (expression);                                          \
  if (!status_or.ok()) {                                                  \
    return status_or.status();                                            \
  }                                                                       \
  declaration = *std::move(status_or)
