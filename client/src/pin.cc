#include "client/src/pin.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/src/errors.h"

namespace moment::client {
namespace {

constexpr absl::Duration kUnpinTimeout = absl::Seconds(5);
constexpr int kSegments = 3;

absl::Status CheckResponse(const v1::PinResponse& response, size_t files) {
  if (static_cast<size_t>(response.buckets_size()) != files) {
    return absl::InternalError(absl::StrCat("the daemon pinned ", response.buckets_size(),
                                            " buckets and gave ", files, " files"));
  }
  for (const v1::PinnedBucket& bucket : response.buckets()) {
    if (bucket.segments_size() != kSegments) {
      return absl::InternalError(absl::StrCat("the daemon pinned a bucket of ",
                                              bucket.segments_size(), " segments, ", kSegments,
                                              " are known"));
    }
  }
  return absl::OkStatus();
}

// The pieces of one segment of a bucket: its slices lie one after the other.
void AddPieces(const v1::PinnedBucket& bucket, int segment, int fd, const TensorMap& tensors,
               std::vector<moment_pin_piece>& pieces) {
  const v1::PinnedSegment& place = bucket.segments(segment);
  const auto type = static_cast<moment_type>(place.type());
  uint64_t offset = place.offset_bytes();
  for (const v1::BucketSlice& slice : bucket.slices()) {
    if (const absl::optional<uint32_t> tensor = tensors.FromStore(slice.tensor())) {
      moment_pin_piece piece = {};
      piece.tensor = *tensor;
      piece.segment = static_cast<moment_segment>(segment);
      piece.type = type;
      piece.fd = fd;
      piece.offset_bytes = offset;
      piece.first = slice.element_offset();
      piece.count = slice.element_count();
      pieces.push_back(piece);
    }
    offset += slice.element_count() * SizeBytes(type);
  }
}

std::vector<uint64_t> StepsOf(const v1::PinResponse& response, const TensorMap& tensors) {
  std::vector<uint64_t> steps(tensors.size(), 0);
  for (const v1::TensorSteps& run : response.steps()) {
    for (uint32_t i = 0; i < run.count(); ++i) {
      if (const absl::optional<uint32_t> tensor = tensors.FromStore(run.first() + i)) {
        steps[*tensor] = run.t();
      }
    }
  }
  return steps;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Pin>> Pin::Make(const v1::PinResponse& response,
                                               const TensorMap& tensors,
                                               std::vector<UniqueFd> files,
                                               std::weak_ptr<Connection> connection) {
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckResponse(response, files.size()));
  std::unique_ptr<Pin> pin(new Pin());
  pin->id_ = response.pin();
  pin->commit_ = response.commit();
  pin->size_bytes_ = response.size_bytes();
  pin->steps_ = StepsOf(response, tensors);
  for (int bucket = 0; bucket < response.buckets_size(); ++bucket) {
    for (int segment = 0; segment < kSegments; ++segment) {
      AddPieces(response.buckets(bucket), segment, files[static_cast<size_t>(bucket)].get(),
                tensors, pin->pieces_);
    }
  }
  std::sort(pin->pieces_.begin(), pin->pieces_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.tensor, a.segment, a.first) < std::tie(b.tensor, b.segment, b.first);
  });
  pin->files_ = std::move(files);
  pin->connection_ = std::move(connection);
  return pin;
}

absl::Status Pin::Release() {
  if (!owner_.mine() || std::exchange(released_, true)) {
    return absl::OkStatus();
  }
  files_.clear();
  const std::shared_ptr<Connection> connection = connection_.lock();
  return connection == nullptr ? absl::OkStatus() : Unpin(*connection, id_);
}

absl::Status Unpin(Connection& connection, const std::string& id) {
  if (!connection.alive()) {
    return absl::OkStatus();
  }
  v1::UnpinRequest request;
  request.set_session(connection.session());
  request.set_pin(id);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + kUnpinTimeout));
  v1::UnpinResponse response;
  const absl::Status status = FromGrpc(connection.stub().Unpin(&context, request, &response));
  // A session that has ended meanwhile, with or without its daemon, has dropped its pins.
  const bool over = absl::IsFailedPrecondition(status) || absl::IsUnavailable(status);
  return over ? absl::OkStatus() : status;
}

}  // namespace moment::client
