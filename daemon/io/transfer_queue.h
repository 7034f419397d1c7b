#pragma once

#include <cstdint>

#include "daemon/io/io_engine.h"

namespace moment::io {

// A first-in first-out list of transfers, linked through Transfer::next: pushing allocates nothing.
// Not thread-safe.
class TransferQueue {
 public:
  bool empty() const { return first_ == nullptr; }
  uint64_t count() const { return count_; }
  Transfer* front() const { return first_; }

  void Push(Transfer* transfer) {
    transfer->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = transfer;
    last_ = transfer;
    ++count_;
  }

  // Null when empty.
  Transfer* Pop() { return Take(0); }

  // Removes the transfer that `index` others precede.
  Transfer* Take(uint64_t index) {
    Transfer* before = nullptr;
    Transfer* taken = first_;
    for (; index > 0 && taken != nullptr; --index) {
      before = taken;
      taken = taken->next;
    }
    if (taken == nullptr) {
      return nullptr;
    }
    (before == nullptr ? first_ : before->next) = taken->next;
    if (last_ == taken) {
      last_ = before;
    }
    taken->next = nullptr;
    --count_;
    return taken;
  }

 private:
  Transfer* first_ = nullptr;
  Transfer* last_ = nullptr;
  uint64_t count_ = 0;
};

}  // namespace moment::io
