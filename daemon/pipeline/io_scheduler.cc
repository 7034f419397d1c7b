#include "daemon/pipeline/io_scheduler.h"

#include <algorithm>
#include <utility>

namespace moment::pipeline {

IoScheduler::IoScheduler(io::IoEngine& engine, uint32_t depth)
    : engine_(engine), pieces_(std::max<uint32_t>(depth, 1)) {
  absl::MutexLock lock(&mutex_);
  for (Piece& piece : pieces_) {
    piece.scheduler = this;
    piece.done = OnPieceDone;
    piece.next = free_;
    free_ = &piece;
  }
}

IoScheduler::~IoScheduler() {
  // A thread that finished a piece of a request whose last piece another thread reported may still
  // be looking for more to do.
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(
      +[](int* finishing) { return *finishing == 0; }, &finishing_));
}

IoShare* IoScheduler::OpenShare() {
  absl::MutexLock lock(&mutex_);
  shares_.push_back(std::make_unique<IoShare>());
  return shares_.back().get();
}

void IoScheduler::CloseShare(IoShare* share) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(shares_, [share](const auto& owned) { return owned.get() == share; });
}

void IoScheduler::Submit(IoShare* share, IoRequest* request, IoClass io_class) {
  request->share = share;
  request->issued = 0;
  request->in_flight = 0;
  request->status = absl::OkStatus();
  {
    absl::MutexLock lock(&mutex_);
    Enqueue(request, io_class);
  }
  Dispatch();
}

void IoScheduler::Expedite(IoRequest* request) {
  {
    absl::MutexLock lock(&mutex_);
    if (!request->queued || request->io_class == IoClass::kStep) {
      return;
    }
    Unqueue(request);
    Enqueue(request, IoClass::kStep);
  }
  Dispatch();
}

void IoScheduler::Cancel(IoRequest* request) {
  {
    absl::MutexLock lock(&mutex_);
    if (!request->queued) {
      return;
    }
    Unqueue(request);
    if (request->status.ok()) {
      request->status = absl::CancelledError();
    }
    if (request->in_flight > 0) {
      return;
    }
  }
  request->done(request);
}

void IoScheduler::OnPieceDone(io::Transfer* transfer, absl::Status status) noexcept {
  auto* piece = static_cast<Piece*>(transfer);
  piece->scheduler->Finish(piece, std::move(status));
}

void IoScheduler::Finish(Piece* piece, absl::Status status) {
  IoRequest* request = piece->request;
  bool done = false;
  {
    absl::MutexLock lock(&mutex_);
    ++finishing_;
    if (!status.ok() && request->status.ok()) {
      request->status = std::move(status);
    }
    --request->in_flight;
    if (request->queued && !request->status.ok()) {
      Unqueue(request);
    }
    done = !request->queued && request->in_flight == 0;
    piece->next = free_;
    free_ = piece;
  }
  Dispatch();
  {
    absl::MutexLock lock(&mutex_);
    --finishing_;
  }
  if (done) {
    request->done(request);
  }
}

void IoScheduler::Dispatch() {
  while (Piece* piece = NextPiece()) {
    auto& bytes = piece->op == io::IoOp::kRead ? bytes_read_ : bytes_written_;
    bytes.fetch_add(piece->length, std::memory_order_relaxed);
    engine_.Submit(piece);
  }
}

IoScheduler::Piece* IoScheduler::NextPiece() {
  absl::MutexLock lock(&mutex_);
  IoRequest* request = free_ == nullptr ? nullptr : Pick();
  if (request == nullptr) {
    return nullptr;
  }
  auto* piece = static_cast<Piece*>(free_);
  free_ = piece->next;
  piece->request = request;
  piece->op = request->op;
  piece->file = request->file;
  piece->offset = request->offset + request->issued;
  piece->data = request->data + request->issued;
  piece->length = std::min(kPieceBytes, request->length - request->issued);
  piece->progress = 0;
  piece->next = nullptr;
  request->issued += piece->length;
  ++request->in_flight;
  request->share->served_bytes_[static_cast<int>(request->io_class)] += piece->length;
  if (request->issued == request->length) {
    Unqueue(request);
  }
  return piece;
}

IoRequest* IoScheduler::Pick() {
  for (int io_class = 0; io_class < kIoClasses; ++io_class) {
    IoShare* best = nullptr;
    for (const auto& share : shares_) {
      if (share->queues_[io_class].head != nullptr &&
          (best == nullptr || share->served_bytes_[io_class] < best->served_bytes_[io_class])) {
        best = share.get();
      }
    }
    if (best != nullptr) {
      return best->queues_[io_class].head;
    }
  }
  return nullptr;
}

uint64_t IoScheduler::LeastServed(int io_class) const {
  uint64_t least = UINT64_MAX;
  for (const auto& share : shares_) {
    if (share->queues_[io_class].head != nullptr) {
      least = std::min(least, share->served_bytes_[io_class]);
    }
  }
  return least == UINT64_MAX ? 0 : least;
}

void IoScheduler::Enqueue(IoRequest* request, IoClass io_class) {
  const int index = static_cast<int>(io_class);
  IoShare::Queue& queue = request->share->queues_[index];
  if (queue.head == nullptr) {
    // A store that was idle starts level with the others: idling earns no credit.
    uint64_t& served = request->share->served_bytes_[index];
    served = std::max(served, LeastServed(index));
  }
  request->io_class = io_class;
  request->queued = true;
  request->next = nullptr;
  request->previous = queue.tail;
  (queue.tail == nullptr ? queue.head : queue.tail->next) = request;
  queue.tail = request;
}

void IoScheduler::Unqueue(IoRequest* request) {
  IoShare::Queue& queue = request->share->queues_[static_cast<int>(request->io_class)];
  (request->previous == nullptr ? queue.head : request->previous->next) = request->next;
  (request->next == nullptr ? queue.tail : request->next->previous) = request->previous;
  request->previous = nullptr;
  request->next = nullptr;
  request->queued = false;
}

}  // namespace moment::pipeline
