#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/include/moment/moment.h"
#include "client/src/errors.h"
#include "client/src/store_client.h"

// What the functions of the C ABI share: handles, status codes, the error of the thread, structs of
// several versions.
struct moment_store {
  std::unique_ptr<moment::client::StoreClient> client;
};

namespace moment::client {

// The sentence of this thread's last failed call.
std::string& LastError();

// The code of the ABI; sets LastError() unless it is OK.
moment_status ToMomentStatus(const absl::Status& status);

// No exception leaves the library.
template <typename Body>
moment_status Guard(Body body) noexcept {
  try {
    LastError().clear();
    return ToMomentStatus(body());
  } catch (const std::bad_alloc&) {
    return MOMENT_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    return ToMomentStatus(absl::InternalError(error.what()));
  }
}

// Runs `body` on the store's client: not on a null handle, not in a forked child.
template <typename Body>
moment_status WithStore(const moment_store* store, Body body) noexcept {
  return Guard([&]() -> absl::Status {
    if (store == nullptr) {
      return absl::InvalidArgumentError("the store is NULL");
    }
    if (!store->client->mine()) {
      return ForkedError();
    }
    return body(*store->client);
  });
}

// Results as far as the caller's version of the struct goes.
template <typename Result>
absl::Status Deliver(Result result, Result* out) {
  if (out == nullptr) {
    return absl::OkStatus();
  }
  const size_t size = out->struct_size;
  if (size < sizeof(size_t)) {
    return absl::InvalidArgumentError("a result struct's struct_size is not set");
  }
  result.struct_size = size;
  std::memcpy(static_cast<void*>(out), &result, std::min(size, sizeof(Result)));
  return absl::OkStatus();
}

template <size_t N>
void CopyText(const std::string& text, char (&out)[N]) {
  const size_t length = std::min(text.size(), N - 1);
  std::memcpy(out, text.data(), length);
  out[length] = '\0';
}

void CopyId(const std::string& id, uint8_t (&out)[16]);

moment_commit ToCommit(const v1::CommitInfo& info);

}  // namespace moment::client
