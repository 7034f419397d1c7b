#include "tests/client/fake_daemon.h"

#include <grpcpp/server_builder.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/src/process.h"
#include "tests/client/fake_support.h"

namespace moment::testing {
namespace {

constexpr uint32_t kSlots = 2;
constexpr uint64_t kSlotBytes = 4096;
constexpr uint32_t kMaxRuns = 4;
constexpr absl::Duration kCancelCheck = absl::Milliseconds(50);

std::string KeyOf(const v1::StoreName& name) {
  return absl::StrCat(name.job(), "/", name.role(), "/", name.rank());
}

uint64_t ElementsOf(const v1::Tensor& tensor) {
  uint64_t elements = 1;
  for (const uint64_t extent : tensor.shape()) {
    elements *= extent;
  }
  return elements;
}

}  // namespace

FakeDaemon::FakeDaemon(const std::string& directory, FakeDisk* disk)
    : directory_(directory), disk_(disk) {
  ::unlink(socket().c_str());
  const std::string door = directory + "/fd.sock";
  ::unlink(door.c_str());
  door_ = client::UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, door.c_str(), sizeof address.sun_path - 1);
  if (::bind(door_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(door_.get(), 16) != 0) {
    std::abort();
  }
  door_thread_ = std::thread([this] { ServeDescriptors(); });
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + socket(), grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  builder.SetMaxReceiveMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  server_ = builder.BuildAndStart();
}

FakeDaemon::~FakeDaemon() {
  stopping_ = true;
  EndSessions("the daemon stops");
  server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(200));
  ::shutdown(door_.get(), SHUT_RDWR);
  door_thread_.join();
}

void FakeDaemon::LoseUncommitted(FakeDisk* disk) {
  for (auto& [key, store] : disk->stores) {
    if (!disk->committed[key].empty()) {
      store = disk->committed[key].back();
    }
  }
}

std::vector<v1::OpenRequest> FakeDaemon::opens() const {
  absl::MutexLock lock(&mutex_);
  return opens_;
}

std::vector<v1::StepRequest> FakeDaemon::steps() const {
  absl::MutexLock lock(&mutex_);
  return steps_;
}

void FakeDaemon::EndSessions(const std::string& reason) {
  absl::MutexLock lock(&mutex_);
  for (auto& [id, live] : sessions_) {
    End(*live, reason);
  }
}

void FakeDaemon::End(Live& live, const std::string& reason) {
  live.ended = true;
  live.end_reason = reason;
}

grpc::Status FakeDaemon::Find(const std::string& session, Live** live, FakeStore** store) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end() || found->second->ended) {
    return Refuse(grpc::StatusCode::FAILED_PRECONDITION, "the session has ended");
  }
  *live = found->second.get();
  *store = &disk_->stores[(*live)->store];
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::CheckOpen(const v1::OpenRequest& request, const std::string& key) {
  for (auto& [id, live] : sessions_) {
    if (live->store == key && !live->ended) {
      if (!request.takeover()) {
        return Refuse(grpc::StatusCode::ALREADY_EXISTS, key + " has a live session");
      }
      End(*live, "taken over");
    }
  }
  const auto found = disk_->stores.find(key);
  const bool has_state = found != disk_->stores.end() && !found->second.empty;
  if (has_state && request.resume() == v1::RESUME_UNSPECIFIED) {
    return Refuse(grpc::StatusCode::ALREADY_EXISTS, key + " has state: choose a resume");
  }
  if (!has_state && request.resume() == v1::RESUME_MUST) {
    return Refuse(grpc::StatusCode::NOT_FOUND, key + " has no state");
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Open(grpc::ServerContext*, const v1::OpenRequest* request,
                              v1::OpenResponse* response) {
  absl::MutexLock lock(&mutex_);
  opens_.push_back(*request);
  const std::string key = KeyOf(request->name());
  if (grpc::Status status = CheckOpen(*request, key); !status.ok()) {
    return status;
  }
  FakeStore& store = disk_->stores[key];
  if (store.uuid.empty()) {
    store.uuid = client::Hex(client::RandomBytes16());
    store.tensors.assign(request->tensors().rbegin(), request->tensors().rend());
    for (const v1::Tensor& tensor : store.tensors) {
      store.main.emplace_back(ElementsOf(tensor));
    }
    store.exp_avg = store.exp_avg_sq = store.main;
    store.t.assign(store.tensors.size(), 0);
  }
  auto live = std::make_unique<Live>();
  live->store = key;
  live->token = client::RandomBytes16();
  response->set_session(client::Hex(client::RandomBytes16()));
  response->set_token(live->token);
  response->set_store_uuid(store.uuid);
  // The store numbers its tensors backwards, so that a mixed-up index is noticed.
  for (size_t i = 0; i < store.tensors.size(); ++i) {
    response->add_tensor_index(static_cast<uint32_t>(store.tensors.size() - 1 - i));
  }
  response->set_empty(store.empty);
  response->set_commit_every(request->commit_every());
  response->set_profile(v1::PROFILE_TORCH_CPU);
  response->set_device("host");
  response->set_io_engine("memory");
  response->set_lease_seconds(1);
  if (!store.empty) {
    response->mutable_last_applied()->set_sequence(store.sequence);
    response->mutable_last_applied()->set_step_id(store.step_id);
    const std::vector<FakeStore>& commits = disk_->committed[key];
    for (auto commit = commits.rbegin(); commit != commits.rend(); ++commit) {
      *response->add_commits() = InfoOf(*commit);
    }
    response->set_blob(store.blob);
  }
  sessions_[response->session()] = std::move(live);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Session(
    grpc::ServerContext* context,
    grpc::ServerReaderWriter<v1::SessionEvent, v1::SessionRequest>* stream) {
  v1::SessionRequest request;
  if (!stream->Read(&request)) {
    return grpc::Status::OK;
  }
  const std::string session = request.session();
  v1::SessionEvent accepted;
  accepted.mutable_accepted();
  stream->Write(accepted);
  std::thread watch([this, context, session] {
    absl::MutexLock lock(&mutex_);
    const auto over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return sessions_.at(session)->ended;
    };
    mutex_.Await(absl::Condition(&over));
    context->TryCancel();
  });
  while (stream->Read(&request)) {
    v1::SessionEvent renewed;
    renewed.mutable_renewed();
    stream->Write(renewed);
  }
  {
    absl::MutexLock lock(&mutex_);
    End(*sessions_.at(session), "its stream ended");
  }
  watch.join();
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Attach(grpc::ServerContext*, const v1::AttachRequest* request,
                                v1::AttachResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  live->generation = request->generation();
  live->gradient_types.clear();
  for (const v1::Tensor& tensor : store->tensors) {
    live->gradient_types.push_back(tensor.parameter_type());
  }
  for (const v1::GradientType& type : request->gradient_types()) {
    ForEach(type.tensors(), [&](uint32_t i) { live->gradient_types[i] = type.type(); });
  }
  if (live->ring == nullptr) {
    live->ring = std::make_unique<FakeRing>(kSlots, kSlotBytes, kMaxRuns);
  }
  response->set_ring_slots(kSlots);
  response->set_ring_slot_bytes(kSlotBytes);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Detach(grpc::ServerContext*, const v1::DetachRequest* request,
                                v1::DetachResponse*) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  return Find(request->session(), &live, &store);
}

bool FakeDaemon::AwaitRelease(const grpc::ServerContext& context) {
  const auto released = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !faults_.hold_steps || stopping_;
  };
  while (!mutex_.AwaitWithTimeout(absl::Condition(&released), kCancelCheck)) {
    if (context.IsCancelled()) {
      return false;
    }
  }
  return true;
}

grpc::Status FakeDaemon::Step(grpc::ServerContext* context, const v1::StepRequest* request,
                              grpc::ServerWriter<v1::StepResponse>* writer) {
  absl::MutexLock lock(&mutex_);
  if (!AwaitRelease(*context)) {
    return grpc::Status::CANCELLED;
  }
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  steps_.push_back(*request);
  if (Use(faults_.drop_step_before)) {
    End(*live, "dropped");
    return Refuse(grpc::StatusCode::UNAVAILABLE, "dropped before");
  }
  if (Use(faults_.fail_step)) {
    return Refuse(grpc::StatusCode::INTERNAL, "failed");
  }
  const bool replay = request->step_id() == store->step_id;
  if (!replay &&
      (request->sequence() != store->sequence + 1 || request->follows() != store->step_id)) {
    return Refuse(grpc::StatusCode::FAILED_PRECONDITION, "a wrong predecessor");
  }
  if (replay) {
    PushAll(*live, *store);
  } else if (grpc::Status status = Apply(*request, *live, *store); !status.ok()) {
    return status;
  }
  if (Use(faults_.drop_step_after)) {
    End(*live, "dropped");
    return Refuse(grpc::StatusCode::UNAVAILABLE, "dropped after");
  }
  v1::StepResponse event;
  v1::TensorRun* run = event.mutable_bucket_final()->mutable_tensors()->add_runs();
  run->set_count(static_cast<uint32_t>(store->tensors.size()));
  writer->Write(event);
  event.mutable_done()->set_sequence(request->sequence());
  event.mutable_done()->set_step_id(request->step_id());
  event.mutable_done()->set_replayed(replay);
  event.mutable_done()->mutable_statistics()->set_chunks(1);
  writer->Write(event);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Skip(grpc::ServerContext*, const v1::SkipRequest* request,
                              v1::SkipResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  Commit(live->store);
  store->sequence = request->sequence();
  store->step_id = request->step_id();
  store->blob = request->blob();
  response->set_sequence(request->sequence());
  response->set_skipped(true);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Flush(grpc::ServerContext*, const v1::FlushRequest* request,
                               v1::FlushResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  if (request->sequence() != store->sequence) {
    return Refuse(grpc::StatusCode::FAILED_PRECONDITION, "not the last applied one");
  }
  *response->mutable_commit() = Commit(live->store);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Refresh(grpc::ServerContext*, const v1::RefreshRequest* request,
                                 v1::RefreshResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  if (request->has_whole() && !store->empty && !request->whole().discard()) {
    return Refuse(grpc::StatusCode::FAILED_PRECONDITION, "the store has state: discard it");
  }
  v1::TensorSet all;
  v1::TensorRun* run = all.add_runs();
  run->set_count(static_cast<uint32_t>(store->tensors.size()));
  bool good = true;
  ForEach(request->has_whole() ? all : request->tensors(),
          [&](uint32_t i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
            good = good && Pull(v1::RING_OP_PARAMETERS_IN, store->tensors[i].parameter_type(), i,
                                *live, store->main[i]);
          });
  if (!good) {
    return Refuse(grpc::StatusCode::INVALID_ARGUMENT, "a parameter is missing");
  }
  if (request->has_whole()) {
    for (size_t i = 0; i < store->tensors.size(); ++i) {
      std::fill(store->exp_avg[i].begin(), store->exp_avg[i].end(), 0.0f);
      std::fill(store->exp_avg_sq[i].begin(), store->exp_avg_sq[i].end(), 0.0f);
      store->t[i] = 0;
    }
    store->sequence = request->whole().start_sequence();
    store->step_id = std::string(16, '\0');
    store->blob = request->blob();
    store->empty = false;
    disk_->committed[live->store].clear();
  }
  *response->mutable_commit() = Commit(live->store);
  if (Use(faults_.drop_refresh_after)) {
    End(*live, "dropped");
    return Refuse(grpc::StatusCode::UNAVAILABLE, "dropped after");
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Materialize(grpc::ServerContext*, const v1::MaterializeRequest* request,
                                     v1::MaterializeResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  if (!PushAll(*live, *store)) {
    return Refuse(grpc::StatusCode::INVALID_ARGUMENT, "a parameter is missing");
  }
  response->set_sequence(store->sequence);
  response->set_step_id(store->step_id);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Rollback(grpc::ServerContext*, const v1::RollbackRequest* request,
                                  v1::RollbackResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  for (const FakeStore& commit : disk_->committed[live->store]) {
    if (commit.sequence == request->sequence()) {
      const FakeStore target = commit;
      *store = target;
      *response->mutable_commit() = Commit(live->store);
      response->set_blob(store->blob);
      *response->add_commits() = response->commit();
      return grpc::Status::OK;
    }
  }
  return Refuse(grpc::StatusCode::NOT_FOUND, "no live commit of that sequence");
}

grpc::Status FakeDaemon::Close(grpc::ServerContext*, const v1::CloseRequest* request,
                               v1::CloseResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  if (!store->empty) {
    *response->mutable_commit() = Commit(live->store);
  }
  End(*live, "closed");
  return grpc::Status::OK;
}

}  // namespace moment::testing
