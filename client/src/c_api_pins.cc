// The C ABI over Pin.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "client/include/moment/moment.h"
#include "client/src/c_api_support.h"
#include "client/src/pin.h"

using moment::client::Guard;
using moment::client::Pin;
using moment::client::StoreClient;

struct moment_pin {
  std::unique_ptr<Pin> pin;
};

namespace {

template <typename Body>
moment_status WithPin(const moment_pin* pin, Body body) noexcept {
  return Guard([&]() -> absl::Status {
    if (pin == nullptr) {
      return absl::InvalidArgumentError("the pin is NULL");
    }
    if (!pin->pin->mine()) {
      return moment::client::ForkedError();
    }
    return body(*pin->pin);
  });
}

template <typename Item>
absl::Status DeliverList(const std::vector<Item>& items, Item* out, size_t capacity,
                         size_t* count) {
  if (count == nullptr) {
    return absl::InvalidArgumentError("no room for the count");
  }
  *count = items.size();
  if (out != nullptr) {
    std::copy_n(items.begin(), std::min(capacity, items.size()), out);
  }
  return absl::OkStatus();
}

}  // namespace

extern "C" {

moment_status moment_pin_create(moment_store* store, moment_pin** pin) {
  return moment::client::WithStore(store, [&](StoreClient& client) -> absl::Status {
    if (pin == nullptr) {
      return absl::InvalidArgumentError("no room for the pin");
    }
    *pin = nullptr;
    absl::StatusOr<std::unique_ptr<Pin>> created = client.CreatePin();
    MOMENT_CLIENT_RETURN_IF_ERROR(created.status());
    *pin = new moment_pin{*std::move(created)};
    return absl::OkStatus();
  });
}

moment_status moment_pin_get_info(const moment_pin* pin, moment_pin_info* info) {
  return WithPin(pin, [&](const Pin& pinned) {
    moment_pin_info out = MOMENT_PIN_INFO_INIT;
    out.commit = moment::client::ToCommit(pinned.commit());
    out.size_bytes = pinned.size_bytes();
    moment::client::CopyText(pinned.id(), out.id);
    return moment::client::Deliver(out, info);
  });
}

moment_status moment_pin_steps(const moment_pin* pin, uint64_t* steps, size_t capacity,
                               size_t* count) {
  return WithPin(
      pin, [&](const Pin& pinned) { return DeliverList(pinned.steps(), steps, capacity, count); });
}

moment_status moment_pin_pieces(const moment_pin* pin, moment_pin_piece* pieces, size_t capacity,
                                size_t* count) {
  return WithPin(pin, [&](const Pin& pinned) {
    return DeliverList(pinned.pieces(), pieces, capacity, count);
  });
}

moment_status moment_pin_release(moment_pin** pin) {
  if (pin == nullptr || *pin == nullptr || !(*pin)->pin->mine()) {
    return MOMENT_OK;
  }
  return Guard([&] {
    const std::unique_ptr<moment_pin> owned(std::exchange(*pin, nullptr));
    return owned->pin->Release();
  });
}

}  // extern "C"
