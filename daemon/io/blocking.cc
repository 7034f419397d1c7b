#include <utility>

#include "absl/synchronization/notification.h"
#include "daemon/io/io_engine.h"

namespace moment::io {
namespace {

struct Waiter {
  absl::Notification finished;
  absl::Status status;
};

absl::Status SubmitAndWait(IoEngine& engine, Transfer* transfer) {
  Waiter waiter;
  transfer->context = &waiter;
  transfer->done = [](Transfer* moved, absl::Status status) noexcept {
    auto* waiting = static_cast<Waiter*>(moved->context);
    waiting->status = std::move(status);
    waiting->finished.Notify();
  };
  engine.Submit(transfer);
  waiter.finished.WaitForNotification();
  return waiter.status;
}

}  // namespace

absl::Status Read(IoEngine& engine, File& file, uint64_t offset, std::byte* data, uint64_t length) {
  Transfer transfer{
      .op = IoOp::kRead, .file = &file, .offset = offset, .data = data, .length = length};
  return SubmitAndWait(engine, &transfer);
}

absl::Status Write(IoEngine& engine, File& file, uint64_t offset, const std::byte* data,
                   uint64_t length) {
  // A write only reads its buffer; Transfer has one pointer for both directions.
  Transfer transfer{.op = IoOp::kWrite,
                    .file = &file,
                    .offset = offset,
                    .data = const_cast<std::byte*>(data),
                    .length = length};
  return SubmitAndWait(engine, &transfer);
}

absl::Status Sync(IoEngine& engine, File& file) {
  Transfer transfer{.op = IoOp::kSync, .file = &file};
  return SubmitAndWait(engine, &transfer);
}

}  // namespace moment::io
