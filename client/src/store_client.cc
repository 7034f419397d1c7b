// Opening, closing, attaching, and the reconnects; steps and changes are in files of their own.
#include "client/src/store_client.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/errors.h"
#include "client/src/socket_path.h"

namespace moment::client {
namespace {

constexpr absl::Duration kConnectSlice = absl::Seconds(2);
constexpr absl::Duration kLeastConnect = absl::Milliseconds(100);
constexpr absl::Duration kConfirmTimeout = absl::Seconds(5);
constexpr absl::Duration kEndSessionTimeout = absl::Seconds(10);
constexpr absl::Duration kFirstPause = absl::Milliseconds(20);
constexpr absl::Duration kLongestPause = absl::Seconds(1);

Position PositionOf(const v1::StepPosition& position) {
  Position out;
  out.sequence = position.sequence();
  if (position.step_id().size() == out.step_id.size()) {
    out.step_id = position.step_id();
  }
  return out;
}

bool Unreachable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable ||
         status.code() == absl::StatusCode::kDeadlineExceeded;
}

}  // namespace

StoreClient::StoreClient(std::string socket_path, v1::OpenRequest request)
    : socket_path_(std::move(socket_path)), request_(std::move(request)) {}

absl::StatusOr<std::unique_ptr<StoreClient>> StoreClient::Open(const moment_open_options& options) {
  MOMENT_CLIENT_RETURN_IF_ERROR(CheckNotForked());
  auto path = ResolveSocketPath(options.socket == nullptr ? "" : options.socket);
  MOMENT_CLIENT_RETURN_IF_ERROR(path.status());
  absl::StatusOr<v1::OpenRequest> request = MakeOpenRequest(options);
  MOMENT_CLIENT_RETURN_IF_ERROR(request.status());
  std::unique_ptr<StoreClient> client(new StoreClient(*std::move(path), *std::move(request)));
  MOMENT_CLIENT_RETURN_IF_ERROR(client->FirstOpen(options));
  return client;
}

absl::Status StoreClient::FirstOpen(const moment_open_options& options) {
  absl::MutexLock lock(&call_mutex_);
  retry_for_ = absl::Seconds(options.retry_for_seconds);
  const absl::Time deadline = absl::Now() + absl::Seconds(options.connect_for_seconds);
  absl::Duration pause = kFirstPause;
  for (;;) {
    const absl::Duration left = std::max(deadline - absl::Now(), kLeastConnect);
    auto connection =
        Connection::Open(socket_path_, request_, std::min(left, kConnectSlice), canceller_);
    if (connection.ok()) {
      absl::MutexLock state(&state_mutex_);
      connection_ = *std::move(connection);
      opened_ = connection_->opened();
      break;
    }
    if (!Unreachable(connection.status()) || canceller_.cancelled() || absl::Now() >= deadline) {
      closed_ = true;
      return connection.status();
    }
    canceller_.Wait(std::min(pause, left));
    pause = std::min(2 * pause, kLongestPause);
  }
  AdoptOpened();
  const v1::OpenResponse answer = opened();
  tensors_ = TensorMap(DescribeTensors(options),
                       {answer.tensor_index().begin(), answer.tensor_index().end()});
  table_ = std::make_unique<TensorTable>(tensors_.store_size());
  stale_.resize(tensors_.size());
  gradient_types_.resize(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    gradient_types_[i] = tensors_.tensor(i).type;
  }
  return absl::OkStatus();
}

void StoreClient::AdoptOpened() {
  absl::MutexLock lock(&state_mutex_);
  store_uuid_ = opened_.store_uuid();
  const bool has_state = opened_.has_last_applied();
  standing_.must_discard = has_state && request_.resume() == v1::RESUME_NEVER;
  standing_.empty = opened_.empty() || !has_state || standing_.must_discard;
  standing_.stale = !standing_.empty;
  if (has_state && !standing_.must_discard) {
    standing_.answered = PositionOf(opened_.last_applied());
  }
}

StoreClient::~StoreClient() { Close().IgnoreError(); }

absl::Status StoreClient::Close() {
  absl::MutexLock lock(&call_mutex_);
  if (closed_) {
    return absl::OkStatus();
  }
  closed_ = true;
  canceller_.Begin();
  std::shared_ptr<Connection> connection;
  {
    absl::MutexLock state(&state_mutex_);
    connection = std::exchange(connection_, nullptr);
  }
  if (table_ != nullptr) {
    table_->ClearGradients();
    table_->ClearSegments();
    table_->ClearParameters();
  }
  if (connection == nullptr || !connection->alive()) {
    return absl::OkStatus();
  }
  v1::CloseRequest request;
  request.set_session(connection->session());
  v1::CloseResponse response;
  CancellableContext context(canceller_);
  return FromGrpc(connection->stub().Close(context.get(), request, &response));
}

absl::Status StoreClient::Call(const Rpc& rpc) { return CallUntil(rpc, absl::Now() + retry_for_); }

absl::Status StoreClient::CallUntil(const Rpc& rpc, absl::Time deadline) {
  if (closed_) {
    return absl::FailedPreconditionError("the store is closed");
  }
  for (;;) {
    std::shared_ptr<Connection> connection;
    {
      absl::MutexLock state(&state_mutex_);
      connection = connection_;
    }
    if (connection == nullptr || !connection->alive()) {
      connection.reset();
      MOMENT_CLIENT_RETURN_IF_ERROR(Reconnect(deadline));
      continue;
    }
    absl::Status status;
    {
      CancellableContext context(canceller_);
      status = rpc(*connection, context.get());
    }
    if (status.ok() || canceller_.cancelled() || !Lost(status)) {
      return status;
    }
    if (absl::Now() >= deadline) {
      return WithContext(status, "gave up waiting for the daemon");
    }
    connection.reset();
    MOMENT_CLIENT_RETURN_IF_ERROR(Reconnect(deadline));
    // The time to wait is for a daemon that is away, not for a step that had to be repeated.
    deadline = absl::Now() + retry_for_;
  }
}

bool StoreClient::Lost(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
      return true;
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kInternal: {
      std::shared_ptr<Connection> connection;
      {
        absl::MutexLock state(&state_mutex_);
        connection = connection_;
      }
      return connection == nullptr || !connection->Confirm(kConfirmTimeout);
    }
    default:
      return false;
  }
}

absl::Status StoreClient::Reconnect(absl::Time deadline) {
  std::shared_ptr<Connection> lost;
  {
    absl::MutexLock state(&state_mutex_);
    lost = std::exchange(connection_, nullptr);
  }
  if (lost != nullptr) {
    lost_session_ = lost->session();
    lost->StopRing();
    lost_writes_ += lost->parameter_writes();
    lost.reset();
  }
  const absl::Time held_deadline = absl::Now() + 1.5 * absl::Seconds(opened().lease_seconds());
  absl::Duration pause = kFirstPause;
  for (;;) {
    const absl::Duration left = std::max(deadline - absl::Now(), kLeastConnect);
    const absl::Status status = TryReconnect(std::min(left, kConnectSlice));
    if (status.ok() || canceller_.cancelled()) {
      return status.ok() ? status : absl::CancelledError("cancelled while waiting for the daemon");
    }
    // A session that we opened without learning its id, since the answer was lost, ends with its
    // lease; another trainer's stays.
    const bool held = absl::IsAlreadyExists(status) && absl::Now() < held_deadline;
    if (!Unreachable(status) && !held) {
      return WithContext(status, "reconnecting");
    }
    if (absl::Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat("no daemon at ", socket_path_, " for ",
                                                 absl::FormatDuration(retry_for_), ": ",
                                                 status.message()));
    }
    canceller_.Wait(std::min(pause, deadline - absl::Now()));
    pause = std::min(2 * pause, kLongestPause);
  }
}

v1::OpenRequest StoreClient::ReconnectRequest() const {
  const Standing now = standing();
  v1::OpenRequest request = request_;
  request.set_takeover(false);
  if (now.must_discard) {
    request.set_resume(v1::RESUME_NEVER);
  } else {
    request.set_resume(now.empty ? v1::RESUME_AUTO : v1::RESUME_MUST);
  }
  if (!now.empty) {
    request.mutable_last_answered()->set_sequence(now.answered.sequence);
    request.mutable_last_answered()->set_step_id(now.answered.step_id);
  }
  return request;
}

absl::Status StoreClient::TryReconnect(absl::Duration connect_timeout) {
  // Where the connection broke but the daemon lives, our own session may still stand in the way. It
  // is ended by its id, so that nobody else's is: a reconnect never takes a store over.
  if (!lost_session_.empty()) {
    Connection::EndSession(socket_path_, lost_session_, kEndSessionTimeout);
  }
  auto opened = Connection::Open(socket_path_, ReconnectRequest(), connect_timeout, canceller_);
  MOMENT_CLIENT_RETURN_IF_ERROR(opened.status());
  std::shared_ptr<Connection> connection = *std::move(opened);
  lost_session_ = connection->session();
  absl::StatusOr<Comparison> found = CheckReopened(connection->opened());
  MOMENT_CLIENT_RETURN_IF_ERROR(found.status());
  {
    absl::MutexLock state(&state_mutex_);
    connection_ = connection;
    opened_ = connection->opened();
    ++standing_.reconnects;
  }
  lost_session_.clear();
  if (attached_) {
    MOMENT_CLIENT_RETURN_IF_ERROR(AttachHere());
  }
  if (*found == Comparison::kRewound) {
    return RewoundError(absl::StrCat("the store was set back to sequence ",
                                     standing().answered.sequence,
                                     ": what followed was lost with the daemon before its commit"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Comparison> StoreClient::CheckReopened(const v1::OpenResponse& opened) {
  if (opened.store_uuid() != store_uuid_) {
    return absl::FailedPreconditionError("another store stands in this one's place");
  }
  if (!std::equal(opened.tensor_index().begin(), opened.tensor_index().end(),
                  tensors_.to_store().begin(), tensors_.to_store().end())) {
    return absl::FailedPreconditionError("the store's tensors are numbered otherwise than before");
  }
  const Standing now = standing();
  if (now.empty || now.changing) {
    return Comparison::kSame;
  }
  if (!opened.has_last_applied()) {
    return absl::FailedPreconditionError("the store is empty, its state was dropped");
  }
  const Position store = PositionOf(opened.last_applied());
  const Comparison found = Compare(store, now.answered, now.in_flight);
  if (found == Comparison::kRewound) {
    Restand([&](Standing& standing) {
      standing.answered = store;
      standing.in_flight.reset();
      standing.rewound = true;
      standing.stale = true;
    });
  }
  if (found != Comparison::kDifferent) {
    return found;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the store stands at sequence ", store.sequence, " (", Hex(store.step_id).substr(0, 8),
      "), this trainer at ", now.answered.sequence, " (", Hex(now.answered.step_id).substr(0, 8),
      "): another trainer has stepped it"));
}

absl::Status StoreClient::AttachHere() {
  std::shared_ptr<Connection> connection;
  {
    absl::MutexLock state(&state_mutex_);
    connection = connection_;
  }
  v1::AttachRequest request;
  request.set_generation(++generation_);
  FillGradientTypes(tensors_, gradient_types_, request);
  absl::StatusOr<SharedBuffers> shared =
      connection->gpu().Describe(GpuRegions::Holder::kAttachment, parameters_, 1);
  MOMENT_CLIENT_RETURN_IF_ERROR(shared.status());
  *request.mutable_regions() = shared->regions;
  *request.mutable_parameters() = shared->locations;
  table_->SetGeneration(generation_);
  shared_ = *std::move(shared);
  return connection->Attach(std::move(request), table_.get(), canceller_);
}

absl::Status StoreClient::AttachMoved() {
  if (!attached_ || !on_gpu_) {
    return absl::OkStatus();
  }
  return Call([this](Connection& connection, grpc::ClientContext*) {
    call_mutex_.AssertHeld();
    absl::StatusOr<SharedBuffers> now =
        connection.gpu().Describe(GpuRegions::Holder::kAttachment, parameters_, 1);
    MOMENT_CLIENT_RETURN_IF_ERROR(now.status());
    return now->Identity() == shared_.Identity() ? absl::OkStatus() : AttachHere();
  });
}

absl::Status StoreClient::Attach(absl::Span<void* const> parameters) {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  auto buffers = MakeParameterBuffers(tensors_, parameters);
  MOMENT_CLIENT_RETURN_IF_ERROR(buffers.status());
  FindGpus(*buffers);
  const bool was_on_gpu = on_gpu_;
  on_gpu_ = std::any_of(buffers->begin(), buffers->end(),
                        [](const Buffer& buffer) { return buffer.gpu >= 0; });
  parameters_ = *buffers;
  // Of parameters that the ring serves the daemon knows tensors, not addresses: moved ones need no
  // new Attach.
  table_->BindParameters(*std::move(buffers), generation_);
  if (attached_ && !on_gpu_ && !was_on_gpu) {
    return absl::OkStatus();
  }
  if (attached_ && on_gpu_) {
    return AttachMoved();
  }
  MOMENT_CLIENT_RETURN_IF_ERROR(Call([this](Connection&, grpc::ClientContext*) {
    call_mutex_.AssertHeld();
    return AttachHere();
  }));
  attached_ = true;
  return absl::OkStatus();
}

absl::Status StoreClient::Detach() {
  absl::MutexLock lock(&call_mutex_);
  canceller_.Begin();
  table_->ClearGradients();
  table_->ClearParameters();
  parameters_.clear();
  on_gpu_ = false;
  shared_ = SharedBuffers();
  if (!std::exchange(attached_, false)) {
    return absl::OkStatus();
  }
  std::shared_ptr<Connection> connection;
  {
    absl::MutexLock state(&state_mutex_);
    connection = connection_;
  }
  if (connection == nullptr || !connection->alive()) {
    return absl::OkStatus();
  }
  return connection->Detach(generation_, canceller_);
}

Standing StoreClient::standing() const {
  absl::MutexLock lock(&state_mutex_);
  return standing_;
}

v1::OpenResponse StoreClient::opened() const {
  absl::MutexLock lock(&state_mutex_);
  return opened_;
}

std::string StoreClient::transport() const {
  absl::MutexLock lock(&state_mutex_);
  return connection_ == nullptr ? "" : connection_->transport();
}

std::vector<uint32_t> StoreClient::added() const {
  return tensors_.IndicesFromStore(opened().added());
}

uint64_t StoreClient::ParameterWrites() const {
  absl::MutexLock lock(&state_mutex_);
  return lost_writes_ + (connection_ == nullptr ? 0 : connection_->parameter_writes());
}

}  // namespace moment::client
