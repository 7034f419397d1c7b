// The arithmetic and the commits of the fake daemon, over plain arrays.
#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tests/client/fake_daemon.h"
#include "tests/client/fake_support.h"
#include "tests/client/half.h"

namespace moment::testing {

bool FakeDaemon::Pull(v1::RingOp op, v1::DataType type, uint32_t tensor, Live& live,
                      std::vector<float>& out) {
  const uint64_t element_bytes = type == v1::DATA_TYPE_FLOAT32 ? 4 : 2;
  const uint64_t slice = live.ring->slot_bytes() / element_bytes;
  for (uint64_t first = 0; first < out.size(); first += slice) {
    const uint64_t count = std::min<uint64_t>(slice, out.size() - first);
    v1::RingRun run = {tensor, 0, first * element_bytes, count * element_bytes, 0};
    if (live.ring->Run(op, live.generation, run) != v1::RING_RESULT_OK) {
      return false;
    }
    for (uint64_t i = 0; i < count; ++i) {
      out[first + i] = Widen(type, live.ring->slot(0) + i * element_bytes);
    }
  }
  return true;
}

bool FakeDaemon::Push(uint32_t tensor, Live& live, const FakeStore& store) {
  const v1::DataType type = store.tensors[tensor].parameter_type();
  const uint64_t element_bytes = type == v1::DATA_TYPE_FLOAT32 ? 4 : 2;
  const uint64_t slice = live.ring->slot_bytes() / element_bytes;
  const std::vector<float>& values = store.main[tensor];
  for (uint64_t first = 0; first < values.size(); first += slice) {
    const uint64_t count = std::min<uint64_t>(slice, values.size() - first);
    for (uint64_t i = 0; i < count; ++i) {
      Narrow(type, values[first + i], live.ring->slot(0) + i * element_bytes);
    }
    v1::RingRun run = {tensor, 0, first * element_bytes, count * element_bytes, 0};
    if (live.ring->Run(v1::RING_OP_PARAMETERS_OUT, live.generation, run) != v1::RING_RESULT_OK) {
      return false;
    }
  }
  return true;
}

bool FakeDaemon::PushAll(Live& live, const FakeStore& store) {
  for (uint32_t i = 0; i < store.tensors.size(); ++i) {
    if (!Push(i, live, store)) {
      return false;
    }
  }
  return true;
}

v1::CommitInfo FakeDaemon::Commit(const std::string& key) {
  FakeStore& store = disk_->stores[key];
  ++store.id;
  std::vector<FakeStore>& commits = disk_->committed[key];
  commits.erase(
      std::remove_if(commits.begin(), commits.end(),
                     [&](const FakeStore& commit) { return commit.sequence >= store.sequence; }),
      commits.end());
  commits.push_back(store);
  return InfoOf(store);
}

grpc::Status FakeDaemon::UpdateTensor(const v1::Hyperparameters& hyper, uint32_t tensor, Live& live,
                                      FakeStore& store) {
  std::vector<float> gradient(store.main[tensor].size());
  if (!Pull(v1::RING_OP_GRADIENTS_IN, live.gradient_types[tensor], tensor, live, gradient)) {
    return Refuse(grpc::StatusCode::INVALID_ARGUMENT, "a gradient is missing");
  }
  const auto t = static_cast<double>(++store.t[tensor]);
  for (size_t i = 0; i < gradient.size(); ++i) {
    double p = store.main[tensor][i];
    double g = hyper.maximize() ? -double{gradient[i]} : double{gradient[i]};
    if (hyper.mode() == v1::ADAM_MODE_ADAM) {
      g += hyper.weight_decay() * p;
    } else {
      p *= 1 - hyper.lr() * hyper.weight_decay();
    }
    const double exp_avg = hyper.beta1() * store.exp_avg[tensor][i] + (1 - hyper.beta1()) * g;
    const double exp_avg_sq =
        hyper.beta2() * store.exp_avg_sq[tensor][i] + (1 - hyper.beta2()) * g * g;
    const double denominator =
        std::sqrt(exp_avg_sq / (1 - std::pow(hyper.beta2(), t))) + hyper.eps();
    p -= hyper.lr() / (1 - std::pow(hyper.beta1(), t)) * exp_avg / denominator;
    store.main[tensor][i] = static_cast<float>(p);
    store.exp_avg[tensor][i] = static_cast<float>(exp_avg);
    store.exp_avg_sq[tensor][i] = static_cast<float>(exp_avg_sq);
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Apply(const v1::StepRequest& request, Live& live, FakeStore& store) {
  FakeStore next = store;
  std::set<uint32_t> participants;
  ForEach(request.participants(), [&](uint32_t i) { participants.insert(i); });
  grpc::Status status;
  for (const v1::Group& group : request.groups()) {
    ForEach(group.tensors(), [&](uint32_t i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      if (status.ok() && (!request.has_participants() || participants.count(i) > 0)) {
        status = UpdateTensor(group.hyperparameters(), i, live, next);
      }
    });
  }
  if (!status.ok()) {
    return status;
  }
  if (Use(faults_.fail_step_midway)) {
    Push(static_cast<uint32_t>(next.tensors.size() - 1), live, next);
    return Refuse(grpc::StatusCode::INTERNAL, "failed midway");
  }
  Commit(live.store);  // of the state before
  next.id = store.id;
  next.sequence = request.sequence();
  next.step_id = request.step_id();
  next.blob = request.blob();
  store = std::move(next);
  return PushAll(live, store)
             ? grpc::Status::OK
             : Refuse(grpc::StatusCode::INVALID_ARGUMENT, "a parameter is missing");
}

}  // namespace moment::testing
