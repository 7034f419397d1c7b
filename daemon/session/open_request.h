#pragma once

#include <string>

#include "absl/status/status.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

inline constexpr uint64_t kMaxBlobBytes = uint64_t{16} << 20;

// What can be said about an Open before any directory is touched: INVALID_ARGUMENT naming the first
// thing that is wrong.
absl::Status CheckOpenRequest(const v1::OpenRequest& request);

// How a store is called in messages: job 'a', role 'b', rank 0.
std::string DescribeName(const v1::StoreName& name);
// One string per store.
std::string StoreKey(const v1::StoreName& name);

}  // namespace moment::session
