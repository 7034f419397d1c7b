// The state by tensor of the fake daemon: fp32 buffers and segments.
#include <algorithm>
#include <cstring>

#include "tests/client/fake_daemon.h"
#include "tests/client/fake_support.h"

namespace moment::testing {
namespace {

std::vector<float>& SegmentOf(FakeStore& store, const std::string& segment, uint32_t tensor) {
  return segment == "main"      ? store.main[tensor]
         : segment == "exp_avg" ? store.exp_avg[tensor]
                                : store.exp_avg_sq[tensor];
}

uint32_t RingSegmentOf(const std::string& segment) {
  return segment == "main"      ? v1::RING_SEGMENT_MAIN
         : segment == "exp_avg" ? v1::RING_SEGMENT_EXP_AVG
                                : v1::RING_SEGMENT_EXP_AVG_SQ;
}

v1::TensorSet All(const FakeStore& store) {
  v1::TensorSet all;
  all.add_runs()->set_count(static_cast<uint32_t>(store.tensors.size()));
  return all;
}

}  // namespace

std::vector<v1::WriteTensorRequest> FakeDaemon::writes() const {
  absl::MutexLock lock(&mutex_);
  return writes_;
}

bool FakeDaemon::MoveSegment(v1::RingOp op, const std::string& segment, uint32_t tensor,
                             uint64_t binding, Live& live, FakeStore& store) {
  std::vector<float>& values = SegmentOf(store, segment, tensor);
  const uint64_t slice = live.ring->slot_bytes() / sizeof(float);
  for (uint64_t first = 0; first < values.size(); first += slice) {
    const uint64_t bytes = std::min<uint64_t>(slice, values.size() - first) * sizeof(float);
    if (op == v1::RING_OP_SEGMENTS_OUT) {
      std::memcpy(live.ring->slot(0), values.data() + first, bytes);
    }
    const v1::RingRun run = {tensor, RingSegmentOf(segment), first * sizeof(float), bytes, 0};
    if (live.ring->Run(op, live.generation, run, binding) != v1::RING_RESULT_OK) {
      return false;
    }
    if (op == v1::RING_OP_SEGMENTS_IN) {
      std::memcpy(values.data() + first, live.ring->slot(0), bytes);
    }
  }
  return true;
}

grpc::Status FakeDaemon::ReadTensor(grpc::ServerContext*, const v1::ReadTensorRequest* request,
                                    v1::ReadTensorResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  bool good = true;
  std::vector<bool> listed(store->tensors.size(), request->buffers_size() == 0);
  for (const v1::SegmentBuffers& buffers : request->buffers()) {
    ForEach(buffers.tensors(), [&](uint32_t i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      listed[i] = true;
      good = good && MoveSegment(v1::RING_OP_SEGMENTS_OUT, buffers.segment(), i, request->binding(),
                                 *live, *store);
    });
  }
  for (uint32_t i = 0; i < listed.size(); ++i) {
    if (listed[i]) {
      v1::ExpectedSteps* steps = response->add_steps();
      steps->set_t(store->t[i]);
      v1::TensorRun* run = steps->mutable_tensors()->add_runs();
      run->set_first(i);
      run->set_count(1);
    }
  }
  return good ? grpc::Status::OK
              : Refuse(grpc::StatusCode::INVALID_ARGUMENT, "a segment's buffer is missing");
}

grpc::Status FakeDaemon::WriteTensor(grpc::ServerContext* context,
                                     const v1::WriteTensorRequest* request,
                                     v1::WriteTensorResponse* response) {
  absl::MutexLock lock(&mutex_);
  if (!AwaitRelease(*context)) {
    return grpc::Status::CANCELLED;
  }
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  writes_.push_back(*request);
  if (Use(faults_.drop_write_before)) {
    End(*live, "dropped");
    return Refuse(grpc::StatusCode::UNAVAILABLE, "dropped before");
  }
  FakeStore next = *store;
  bool good = true;
  for (const v1::SegmentBuffers& buffers : request->buffers()) {
    ForEach(buffers.tensors(), [&](uint32_t i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      std::vector<float>& values = SegmentOf(next, buffers.segment(), i);
      if (buffers.zeros()) {
        std::fill(values.begin(), values.end(), 0.0f);
      } else {
        good = good && MoveSegment(v1::RING_OP_SEGMENTS_IN, buffers.segment(), i,
                                   request->binding(), *live, next);
      }
    });
  }
  if (!good) {
    return Refuse(grpc::StatusCode::INVALID_ARGUMENT, "a segment's buffer is missing");
  }
  for (const v1::ExpectedSteps& steps : request->steps()) {
    ForEach(steps.tensors(), [&](uint32_t i) { next.t[i] = steps.t(); });
  }
  *store = std::move(next);
  *response->mutable_commit() = Commit(live->store);
  if (Use(faults_.drop_write_after)) {
    End(*live, "dropped");
    return Refuse(grpc::StatusCode::UNAVAILABLE, "dropped after");
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::ResetMoments(grpc::ServerContext*, const v1::ResetMomentsRequest* request,
                                      v1::ResetMomentsResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  ForEach(request->has_tensors() ? request->tensors() : All(*store), [&](uint32_t i) {
    std::fill(store->exp_avg[i].begin(), store->exp_avg[i].end(), 0.0f);
    std::fill(store->exp_avg_sq[i].begin(), store->exp_avg_sq[i].end(), 0.0f);
    store->t[i] = 0;
  });
  *response->mutable_commit() = Commit(live->store);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Digest(grpc::ServerContext*, const v1::DigestRequest* request,
                                v1::DigestResponse* response) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  // Any numbers that tell the tensors apart.
  ForEach(request->has_tensors() ? request->tensors() : All(*store), [&](uint32_t i) {
    v1::TensorDigest* digest = response->add_tensors();
    digest->set_tensor(i);
    digest->set_main(100 + i);
    digest->set_exp_avg(200 + i);
    digest->set_exp_avg_sq(300 + i);
    digest->set_t(store->t[i]);
  });
  return grpc::Status::OK;
}

}  // namespace moment::testing
