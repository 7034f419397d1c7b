#pragma once

#include <atomic>

#include "daemon/io/io_engine.h"
#include "daemon/io/transfer_queue.h"

namespace moment::io {

// Where any thread leaves transfers for the one that takes them: without lock or allocation, linked
// through Transfer::next.
class TransferInbox {
 public:
  // True if it was empty: the taker must be woken.
  bool Put(Transfer* transfer) {
    Transfer* newest = newest_.load(std::memory_order_relaxed);
    do {
      transfer->next = newest;
    } while (!newest_.compare_exchange_weak(newest, transfer, std::memory_order_release,
                                            std::memory_order_relaxed));
    return newest == nullptr;
  }

  // Moves everything to the end of `queue`, in the order of putting.
  void TakeAll(TransferQueue* queue) {
    Transfer* newest = newest_.exchange(nullptr, std::memory_order_acquire);
    Transfer* oldest = nullptr;
    while (newest != nullptr) {
      Transfer* before = newest->next;
      newest->next = oldest;
      oldest = newest;
      newest = before;
    }
    while (oldest != nullptr) {
      Transfer* after = oldest->next;
      queue->Push(oldest);
      oldest = after;
    }
  }

  // For the taker: what others put at the same time may be missed.
  bool empty() const { return newest_.load(std::memory_order_acquire) == nullptr; }

 private:
  std::atomic<Transfer*> newest_{nullptr};
};

}  // namespace moment::io
