#include "client/src/c_api_support.h"

namespace moment::client {

std::string& LastError() {
  thread_local std::string last_error;
  return last_error;
}

moment_status ToMomentStatus(const absl::Status& status) {
  if (status.ok()) {
    return MOMENT_OK;
  }
  LastError().assign(status.message().data(), status.message().size());
  if (IsRewound(status)) {
    return MOMENT_REWOUND;
  }
  if (IsForked(status)) {
    return MOMENT_FORKED;
  }
  return static_cast<moment_status>(status.code());
}

void CopyId(const std::string& id, uint8_t (&out)[16]) {
  std::memset(out, 0, sizeof out);
  std::memcpy(out, id.data(), std::min(id.size(), sizeof out));
}

moment_commit ToCommit(const v1::CommitInfo& info) {
  moment_commit commit = {};
  commit.id = info.id();
  commit.sequence = info.sequence();
  commit.due = info.due() ? 1 : 0;
  CopyId(info.step_id(), commit.step_id);
  commit.unix_time_ns = info.unix_time_ns();
  return commit;
}

}  // namespace moment::client
