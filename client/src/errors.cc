#include "client/src/errors.h"

#include <cerrno>
#include <string>
#include <system_error>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace moment::client {
namespace {

constexpr char kRewoundPayload[] = "moment/rewound";
constexpr char kForkedPayload[] = "moment/forked";

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return absl::StatusCode::kUnavailable;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::StatusCode::kResourceExhausted;
    case EINVAL:
      return absl::StatusCode::kInvalidArgument;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) {
    return absl::OkStatus();
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::Status FromErrno(int error, absl::string_view what, absl::string_view object) {
  return absl::Status(
      CodeOf(error), absl::StrCat(what, " ", object, ": ", std::generic_category().message(error)));
}

bool OutcomeKnown(const absl::Status& status) {
  return status.code() != absl::StatusCode::kUnavailable &&
         status.code() != absl::StatusCode::kCancelled &&
         status.code() != absl::StatusCode::kDeadlineExceeded;
}

absl::Status WithContext(const absl::Status& status, absl::string_view context) {
  if (status.ok()) {
    return status;
  }
  absl::Status out(status.code(), absl::StrCat(context, ": ", status.message()));
  status.ForEachPayload(
      [&out](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

absl::Status RewoundError(absl::string_view message) {
  absl::Status status = absl::FailedPreconditionError(message);
  status.SetPayload(kRewoundPayload, absl::Cord("1"));
  return status;
}

bool IsRewound(const absl::Status& status) {
  return status.GetPayload(kRewoundPayload).has_value();
}

absl::Status ForkedError() {
  absl::Status status = absl::FailedPreconditionError(
      "this process was forked from the one that opened the store; only that one may use it: make "
      "the optimizer's calls in the training process, not in a forked worker");
  status.SetPayload(kForkedPayload, absl::Cord("1"));
  return status;
}

bool IsForked(const absl::Status& status) { return status.GetPayload(kForkedPayload).has_value(); }

}  // namespace moment::client
