#pragma once

#include <grpcpp/support/status.h>

#include <atomic>
#include <string>

#include "moment/v1/types.pb.h"
#include "tests/client/fake_daemon.h"

namespace moment::testing {

inline grpc::Status Refuse(grpc::StatusCode code, const std::string& message) {
  return grpc::Status(code, message);
}

template <typename Visit>
void ForEach(const v1::TensorSet& set, Visit visit) {
  for (const v1::TensorRun& run : set.runs()) {
    for (uint32_t i = run.first(); i < run.first() + run.count(); ++i) {
      visit(i);
    }
  }
}

// Counts one use of a fault down; false when it is used up.
inline bool Use(std::atomic<int>& counter) {
  return counter.load() > 0 && counter.fetch_sub(1) > 0;
}

inline v1::CommitInfo InfoOf(const FakeStore& store) {
  v1::CommitInfo info;
  info.set_id(store.id);
  info.set_sequence(store.sequence);
  info.set_step_id(store.step_id);
  info.set_due(true);
  return info;
}

}  // namespace moment::testing
