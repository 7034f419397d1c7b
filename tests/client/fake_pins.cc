// Pins of the fake daemon: files in memory.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tests/client/fake_daemon.h"
#include "tests/client/fake_support.h"

namespace moment::testing {
namespace {

constexpr uint64_t kHeaderBytes = 4096;
constexpr absl::Duration kCancelCheck = absl::Milliseconds(20);

// The elements of all tensors in a row, cut into buckets of this many.
std::vector<v1::PinnedBucket> Cut(const FakeStore& store, uint64_t bucket_elements) {
  std::vector<v1::PinnedBucket> buckets;
  uint64_t room = 0;
  for (uint32_t i = 0; i < store.tensors.size(); ++i) {
    for (uint64_t first = 0; first < store.main[i].size();) {
      if (room == 0) {
        buckets.emplace_back();
        room = bucket_elements;
      }
      const uint64_t count = std::min<uint64_t>(room, store.main[i].size() - first);
      v1::BucketSlice* slice = buckets.back().add_slices();
      slice->set_tensor(i);
      slice->set_element_offset(first);
      slice->set_element_count(count);
      first += count;
      room -= count;
    }
  }
  return buckets;
}

void Append(const std::vector<float>& values, const v1::BucketSlice& slice, std::string& content) {
  content.append(reinterpret_cast<const char*>(values.data() + slice.element_offset()),
                 slice.element_count() * sizeof(float));
}

client::UniqueFd MakeFile(const FakeStore& store, v1::PinnedBucket& bucket) {
  std::string content(kHeaderBytes, 'h');
  for (const std::vector<std::vector<float>>* segment :
       {&store.main, &store.exp_avg, &store.exp_avg_sq}) {
    v1::PinnedSegment* place = bucket.add_segments();
    place->set_type(v1::DATA_TYPE_FLOAT32);
    place->set_offset_bytes(content.size());
    for (const v1::BucketSlice& slice : bucket.slices()) {
      Append((*segment)[slice.tensor()], slice, content);
    }
  }
  client::UniqueFd file(::memfd_create("pin", MFD_CLOEXEC));
  if (::write(file.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size())) {
    std::abort();
  }
  return file;
}

}  // namespace

grpc::Status FakeDaemon::Pin(grpc::ServerContext* context, const v1::PinRequest* request,
                             v1::PinResponse* response) {
  faults_.pins_held += faults_.hold_pins ? 1 : 0;
  while (faults_.hold_pins && !context->IsCancelled()) {
    absl::SleepFor(kCancelCheck);
  }
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  *response->mutable_commit() = Commit(live->store);
  response->set_pin(request->operation());
  std::vector<client::UniqueFd> files;
  for (v1::PinnedBucket& bucket : Cut(*store, faults_.pin_bucket_elements)) {
    files.push_back(MakeFile(*store, bucket));
    *response->add_buckets() = std::move(bucket);
  }
  for (uint32_t i = 0; i < store->t.size(); ++i) {
    v1::TensorSteps* steps = response->add_steps();
    steps->set_first(i);
    steps->set_count(1);
    steps->set_t(store->t[i]);
  }
  if (live->unpinned.count(request->operation()) == 0) {
    live->pins[request->operation()] = std::move(files);
  }
  if (Use(faults_.drop_pin_after)) {
    End(*live, "dropped");
    return Refuse(grpc::StatusCode::UNAVAILABLE, "dropped after");
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Unpin(grpc::ServerContext*, const v1::UnpinRequest* request,
                               v1::UnpinResponse*) {
  absl::MutexLock lock(&mutex_);
  Live* live = nullptr;
  FakeStore* store = nullptr;
  if (grpc::Status status = Find(request->session(), &live, &store); !status.ok()) {
    return status;
  }
  live->pins.erase(request->pin());
  live->unpinned.insert(request->pin());
  return grpc::Status::OK;
}

size_t FakeDaemon::pins() const {
  absl::MutexLock lock(&mutex_);
  size_t count = 0;
  for (const auto& [id, live] : sessions_) {
    count += live->ended ? 0 : live->pins.size();
  }
  return count;
}

}  // namespace moment::testing
