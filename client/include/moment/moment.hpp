#pragma once

// The C ABI (moment.h) as C++17: owning handles, std containers, exceptions. Header-only; no type
// of another library. Threads, memory and errors are those of moment.h.

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "moment/moment.h"

namespace moment {

// A failed call.
class Error : public std::runtime_error {
 public:
  Error(moment_status code, const std::string& message)
      : std::runtime_error(std::string(moment_status_name(code)) + ": " + message), code_(code) {}

  moment_status code() const { return code_; }

 private:
  moment_status code_;
};

// MOMENT_REWOUND: the store stands at `sequence`, behind the last answered step.
class Rewound : public Error {
 public:
  Rewound(const std::string& message, uint64_t sequence)
      : Error(MOMENT_REWOUND, message), sequence_(sequence) {}

  uint64_t sequence() const { return sequence_; }

 private:
  uint64_t sequence_;
};

struct Member {
  std::string name = "opt0_0";
  moment_type exp_avg = MOMENT_TYPE_FLOAT32;
  moment_type exp_avg_sq = MOMENT_TYPE_FLOAT32;
};

struct ShardPiece {
  std::string key;
  std::vector<uint64_t> global_shape;
  std::vector<uint64_t> offset;
  std::vector<uint64_t> extent;
  uint64_t flat_begin = 0;
  uint64_t flat_count = 0;
};

struct Tensor {
  std::string name;
  std::vector<uint64_t> shape;
  moment_type type = MOMENT_TYPE_FLOAT32;
  uint32_t member = 0;
  std::vector<ShardPiece> pieces;  // empty: the tensor is whole and its name is its key
  uint32_t replica = 0;
  bool may_pad = false;
};

// How a store is opened; fields as in moment_open_options.
struct OpenOptions {
  std::string job;
  std::string role = "model";
  uint32_t rank = 0;
  std::vector<Member> members = {Member{}};
  std::vector<Tensor> tensors;
  bool positional = false;
  moment_profile profile = MOMENT_PROFILE_DEFAULT;
  uint64_t commit_every = 1;
  uint64_t blob_limit_bytes = 0;
  uint64_t bucket_elements = 0;
  moment_resume resume = MOMENT_RESUME_ASK;
  bool takeover = false;
  std::string socket;
  std::string state_directory;
  std::string device;
  double connect_for_seconds = 10.0;
  double retry_for_seconds = 300.0;
};

struct Group {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  moment_mode mode = MOMENT_MODE_ADAMW;
  bool no_bias_correction = false;
  bool maximize = false;
  float gradient_scale = 1.0f;
  std::vector<moment_run> tensors;
};

struct Step {
  std::vector<Group> groups;
  std::vector<const void*> gradients;       // one a tensor; nullptr: it takes no part
  std::vector<moment_type> gradient_types;  // one a tensor; empty: the parameters' types
  std::string blob;
  // (member, bucket, tensors): these parameters are final. Must not throw or call the store.
  std::function<void(uint32_t, uint32_t, const std::vector<moment_run>&)> bucket_final;
  bool resend = false;
};

// One segment of a tensor; fields as in moment_buffer.
using Buffer = moment_buffer;

struct Write {
  std::vector<Buffer> buffers;
  std::vector<moment_tensor_steps> steps;
  bool parameters_match = false;
};

// A pinned commit. Movable; released by its destructor. May outlive its store.
class Pin {
 public:
  explicit Pin(moment_pin* pin) : pin_(pin) {}
  ~Pin() { moment_pin_release(&pin_); }
  Pin(Pin&& other) noexcept : pin_(std::exchange(other.pin_, nullptr)) {}
  Pin& operator=(Pin&& other) noexcept {
    std::swap(pin_, other.pin_);
    return *this;
  }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

  moment_pin_info Info() const {
    moment_pin_info info = MOMENT_PIN_INFO_INIT;
    Check(moment_pin_get_info(pin_, &info));
    return info;
  }
  // t of each tensor.
  std::vector<uint64_t> Steps() const {
    size_t count = 0;
    Check(moment_pin_steps(pin_, nullptr, 0, &count));
    std::vector<uint64_t> steps(count);
    Check(moment_pin_steps(pin_, steps.data(), count, &count));
    return steps;
  }
  std::vector<moment_pin_piece> Pieces() const {
    size_t count = 0;
    Check(moment_pin_pieces(pin_, nullptr, 0, &count));
    std::vector<moment_pin_piece> pieces(count);
    Check(moment_pin_pieces(pin_, pieces.data(), count, &count));
    return pieces;
  }
  void Release() { Check(moment_pin_release(&pin_)); }

 private:
  static void Check(moment_status status) {
    if (status != MOMENT_OK) {
      throw Error(status, moment_last_error());
    }
  }

  moment_pin* pin_;
};

// One open store. Movable; closed by its destructor, which hides the errors of closing: call
// Close() to see them.
class Store {
 public:
  explicit Store(const OpenOptions& options) { Open(options); }
  ~Store() { moment_close(store_); }
  Store(Store&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)), tensor_count_(other.tensor_count_) {}
  Store& operator=(Store&& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(tensor_count_, other.tensor_count_);
    return *this;
  }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  void Close() { Check(moment_close(std::exchange(store_, nullptr))); }

  void Attach(const std::vector<void*>& parameters) {
    Check(moment_attach(store_, parameters.data(), parameters.size()));
  }
  void Detach() { Check(moment_detach(store_)); }

  moment_statistics Run(const Step& step) {
    std::vector<moment_group> groups;
    for (const Group& group : step.groups) {
      groups.push_back({group.lr, group.beta1, group.beta2, group.eps, group.weight_decay,
                        group.mode, group.no_bias_correction, group.maximize, group.gradient_scale,
                        group.tensors.data(), group.tensors.size()});
    }
    moment_step_options options = MOMENT_STEP_OPTIONS_INIT;
    options.groups = groups.data();
    options.group_count = groups.size();
    options.gradients = step.gradients.data();
    options.gradient_types = step.gradient_types.empty() ? nullptr : step.gradient_types.data();
    options.blob = step.blob.data();
    options.blob_bytes = step.blob.size();
    options.resend = step.resend;
    if (step.bucket_final) {
      options.bucket_final = &BucketFinal;
      options.context = const_cast<Step*>(&step);
    }
    moment_statistics statistics = MOMENT_STATISTICS_INIT;
    Check(moment_step(store_, &options, &statistics));
    return statistics;
  }

  uint64_t Skip(const std::string& blob = {}) {
    uint64_t sequence = 0;
    Check(moment_skip(store_, blob.data(), blob.size(), &sequence));
    return sequence;
  }
  moment_commit Flush() {
    moment_commit commit = {};
    Check(moment_flush(store_, &commit));
    return commit;
  }
  moment_commit Refresh(const std::vector<moment_run>& tensors) {
    moment_commit commit = {};
    Check(moment_refresh(store_, tensors.data(), tensors.size(), &commit));
    return commit;
  }
  moment_commit RefreshAll(bool discard = false, uint64_t start_sequence = 0,
                           const std::string& blob = {}) {
    moment_commit commit = {};
    Check(moment_refresh_all(store_, discard, start_sequence, blob.data(), blob.size(), &commit));
    return commit;
  }
  void Materialize(const std::vector<moment_run>& tensors = {}) {
    Check(moment_materialize(store_, tensors.data(), tensors.size()));
  }
  moment_commit Rollback(uint64_t sequence) {
    moment_commit commit = {};
    Check(moment_rollback(store_, sequence, &commit));
    return commit;
  }

  // Adam's t of each buffer's tensor.
  std::vector<uint64_t> Read(const std::vector<Buffer>& buffers) {
    std::vector<uint64_t> t(buffers.size());
    Check(moment_read_tensors(store_, buffers.data(), buffers.size(), t.data()));
    return t;
  }
  moment_commit WriteTensors(const Write& write) {
    moment_write_options options = MOMENT_WRITE_OPTIONS_INIT;
    options.buffers = write.buffers.data();
    options.buffer_count = write.buffers.size();
    options.steps = write.steps.data();
    options.step_count = write.steps.size();
    options.parameters_match = write.parameters_match;
    moment_commit commit = {};
    Check(moment_write_tensors(store_, &options, &commit));
    return commit;
  }
  moment_commit ResetMoments(const std::vector<moment_run>& tensors) {
    const moment_run none = {0, 0};  // a list without tensors is not NULL, which means all
    moment_commit commit = {};
    Check(moment_reset_moments(store_, tensors.empty() ? &none : tensors.data(), tensors.size(),
                               &commit));
    return commit;
  }
  moment_commit ResetAllMoments() {
    moment_commit commit = {};
    Check(moment_reset_moments(store_, nullptr, 0, &commit));
    return commit;
  }
  // Of all tensors.
  std::vector<moment_tensor_digest> Digest() {
    std::vector<moment_tensor_digest> digests(tensor_count_);
    size_t count = 0;
    Check(moment_digest(store_, nullptr, 0, digests.data(), digests.size(), &count));
    digests.resize(count);
    return digests;
  }
  // Adam's t of every tensor.
  std::vector<uint64_t> Steps() {
    std::vector<uint64_t> t(tensor_count_);
    size_t count = 0;
    Check(moment_steps(store_, t.data(), t.size(), &count));
    return t;
  }
  // Keeps the files of the last answered step as they are, while steps go on.
  Pin CreatePin() {
    moment_pin* pin = nullptr;
    Check(moment_pin_create(store_, &pin));
    return Pin(pin);
  }

  moment_info Info() const {
    moment_info info = MOMENT_INFO_INIT;
    Check(moment_get_info(store_, &info));
    return info;
  }
  std::vector<moment_commit> Commits() const {
    size_t count = 0;
    Check(moment_commits(store_, nullptr, 0, &count));
    std::vector<moment_commit> commits(count);
    Check(moment_commits(store_, commits.data(), count, &count));
    return commits;
  }
  std::string Blob() const {
    size_t length = 0;
    Check(moment_blob(store_, nullptr, 0, &length));
    std::string blob(length, '\0');
    Check(moment_blob(store_, &blob[0], length, &length));
    return blob;
  }
  // Ends the call that runs in another thread.
  void Cancel() { Check(moment_cancel(store_)); }

  moment_store* get() const { return store_; }

 private:
  void Check(moment_status status) const {
    if (status == MOMENT_OK) {
      return;
    }
    const std::string message = moment_last_error();
    if (status == MOMENT_REWOUND) {
      moment_info info = MOMENT_INFO_INIT;
      moment_get_info(store_, &info);
      throw Rewound(message, info.sequence);
    }
    throw Error(status, message);
  }

  static const char* Text(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

  static void BucketFinal(void* context, uint32_t member, uint32_t bucket,
                          const moment_run* tensors, size_t run_count) {
    static_cast<const Step*>(context)->bucket_final(member, bucket, {tensors, tensors + run_count});
  }

  void Open(const OpenOptions& from) {
    std::vector<moment_member> members;
    for (const Member& member : from.members) {
      members.push_back({member.name.c_str(), member.exp_avg, member.exp_avg_sq});
    }
    std::vector<std::vector<moment_shard_piece>> pieces(from.tensors.size());
    std::vector<moment_shard> shards(from.tensors.size());
    std::vector<moment_tensor> tensors;
    for (size_t i = 0; i < from.tensors.size(); ++i) {
      const Tensor& tensor = from.tensors[i];
      for (const ShardPiece& piece : tensor.pieces) {
        pieces[i].push_back({piece.key.c_str(), static_cast<uint32_t>(piece.global_shape.size()),
                             piece.global_shape.data(), piece.offset.data(), piece.extent.data(),
                             piece.flat_begin, piece.flat_count});
      }
      shards[i] = {pieces[i].data(), pieces[i].size(), tensor.replica, tensor.may_pad};
      tensors.push_back({tensor.name.c_str(), tensor.member,
                         static_cast<uint32_t>(tensor.shape.size()), tensor.shape.data(),
                         tensor.type, tensor.pieces.empty() ? nullptr : &shards[i]});
    }
    moment_open_options options = MOMENT_OPEN_OPTIONS_INIT;
    options.socket = Text(from.socket);
    options.job = Text(from.job);
    options.role = from.role.c_str();
    options.rank = from.rank;
    options.members = members.data();
    options.member_count = members.size();
    options.tensors = tensors.data();
    options.tensor_count = tensors.size();
    options.positional = from.positional;
    options.profile = from.profile;
    options.commit_every = from.commit_every;
    options.blob_limit_bytes = from.blob_limit_bytes;
    options.bucket_elements = from.bucket_elements;
    options.resume = from.resume;
    options.takeover = from.takeover;
    options.state_directory = Text(from.state_directory);
    options.device = Text(from.device);
    options.connect_for_seconds = from.connect_for_seconds;
    options.retry_for_seconds = from.retry_for_seconds;
    Check(moment_open(&options, &store_));
    tensor_count_ = tensors.size();
  }

  moment_store* store_ = nullptr;
  size_t tensor_count_ = 0;
};

}  // namespace moment
