#include "client/src/requests.h"

#include <unistd.h>

#include <iterator>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "client/src/errors.h"
#include "client/src/process.h"
#include "proto/moment/v1/ring.h"

namespace moment::client {
namespace {

constexpr char kDefaultMember[] = "opt0_0";

absl::StatusOr<uint64_t> ElementsOf(const moment_tensor& tensor) {
  if (tensor.dimensions > 0 && tensor.shape == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name, " has no shape"));
  }
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor.dimensions; ++i) {
    const uint64_t extent = tensor.shape[i];
    if (extent != 0 && elements > std::numeric_limits<int64_t>::max() / extent) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name, ": its shape has more than 2^63 elements"));
    }
    elements *= extent;
  }
  return elements;
}

void AddShard(const moment_shard& shard, v1::ShardSpec& spec) {
  spec.set_replica(shard.replica);
  spec.set_may_pad(shard.may_pad != 0);
  for (size_t i = 0; i < shard.piece_count; ++i) {
    const moment_shard_piece& from = shard.pieces[i];
    v1::ShardPiece* piece = spec.add_pieces();
    piece->set_key(from.key);
    for (uint32_t d = 0; d < from.dimensions; ++d) {
      piece->add_global_shape(from.global_shape[d]);
      piece->add_offset(from.offset[d]);
      piece->add_extent(from.extent[d]);
    }
    piece->set_flat_begin(from.flat_begin);
    piece->set_flat_count(from.flat_count);
  }
}

// The whole tensor under its own name: one piece, the whole box.
void AddWholeShard(const moment_tensor& tensor, uint64_t elements, v1::ShardSpec& spec) {
  v1::ShardPiece* piece = spec.add_pieces();
  piece->set_key(tensor.name);
  for (uint32_t d = 0; d < tensor.dimensions; ++d) {
    piece->add_global_shape(tensor.shape[d]);
    piece->add_offset(0);
    piece->add_extent(tensor.shape[d]);
  }
  piece->set_flat_count(elements);
}

v1::DataType ToWire(moment_type type) {
  return type == MOMENT_TYPE_DEFAULT ? v1::DATA_TYPE_FLOAT32 : static_cast<v1::DataType>(type);
}

absl::Status AddTensors(const moment_open_options& options, v1::OpenRequest& request) {
  const auto members = static_cast<uint32_t>(request.members_size());
  for (size_t i = 0; i < options.tensor_count; ++i) {
    const moment_tensor& from = options.tensors[i];
    if (from.name == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", i, " has no name"));
    }
    if (from.member >= members) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", from.name, " is of member ",
                                                     from.member, "; there are ", members));
    }
    absl::StatusOr<uint64_t> elements = ElementsOf(from);
    MOMENT_CLIENT_RETURN_IF_ERROR(elements.status());
    v1::Tensor* tensor = request.add_tensors();
    tensor->set_name(from.name);
    tensor->set_member(from.member);
    for (uint32_t d = 0; d < from.dimensions; ++d) {
      tensor->add_shape(from.shape[d]);
    }
    tensor->set_parameter_type(ToWire(from.type));
    if (from.shard != nullptr) {
      AddShard(*from.shard, *tensor->mutable_shard());
    } else if (options.positional == 0) {
      AddWholeShard(from, *elements, *tensor->mutable_shard());
    }
  }
  return absl::OkStatus();
}

void AddMembers(const moment_open_options& options, v1::OpenRequest& request) {
  for (size_t i = 0; i < options.member_count; ++i) {
    v1::Member* member = request.add_members();
    member->set_name(options.members[i].name == nullptr ? "" : options.members[i].name);
    member->mutable_segments()->set_exp_avg(ToWire(options.members[i].exp_avg));
    member->mutable_segments()->set_exp_avg_sq(ToWire(options.members[i].exp_avg_sq));
  }
  if (options.member_count == 0) {
    request.add_members()->set_name(kDefaultMember);
  }
}

void FillGroup(const moment_group& from, v1::Group& group) {
  v1::Hyperparameters* to = group.mutable_hyperparameters();
  to->set_lr(from.lr);
  to->set_beta1(from.beta1);
  to->set_beta2(from.beta2);
  to->set_eps(from.eps);
  to->set_weight_decay(from.weight_decay);
  to->set_mode(from.mode == MOMENT_MODE_ADAM ? v1::ADAM_MODE_ADAM : v1::ADAM_MODE_ADAMW);
  to->set_no_bias_correction(from.no_bias_correction != 0);
  to->set_maximize(from.maximize != 0);
  if (from.gradient_scale != 1.0f) {
    to->set_gradient_scale(from.gradient_scale);
  }
}

// Marks the tensors of all groups, each of which may be in one group only.
absl::StatusOr<std::vector<bool>> AddGroups(const TensorMap& tensors,
                                            const moment_step_options& options,
                                            v1::StepRequest& request) {
  std::vector<bool> grouped(tensors.size(), false);
  for (size_t g = 0; g < options.group_count; ++g) {
    const moment_group& from = options.groups[g];
    auto marked = tensors.Mark({from.runs, from.run_count}, absl::StrCat("group ", g));
    MOMENT_CLIENT_RETURN_IF_ERROR(marked.status());
    for (size_t i = 0; i < grouped.size(); ++i) {
      if ((*marked)[i] && grouped[i]) {
        return absl::InvalidArgumentError(absl::StrCat("tensor ", i, " is in two groups"));
      }
      grouped[i] = grouped[i] || (*marked)[i];
    }
    v1::Group* group = request.add_groups();
    FillGroup(from, *group);
    *group->mutable_tensors() = tensors.ToStore(*marked);
  }
  return grouped;
}

absl::StatusOr<std::vector<bool>> Participants(const TensorMap& tensors,
                                               const moment_step_options& options) {
  if (options.participants != nullptr) {
    return tensors.Mark({options.participants, options.participant_count}, "participants");
  }
  std::vector<bool> taking_part(tensors.size(), false);
  for (size_t i = 0; i < tensors.size(); ++i) {
    taking_part[i] = options.gradients != nullptr && options.gradients[i] != nullptr;
  }
  return taking_part;
}

absl::Status BindGradients(const TensorMap& tensors, const moment_step_options& options,
                           const std::vector<bool>& taking_part, StepPlan& plan) {
  plan.gradients.resize(tensors.store_size());
  plan.gradient_types.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorMap::Tensor& tensor = tensors.tensor(i);
    moment_type type =
        options.gradient_types == nullptr ? MOMENT_TYPE_DEFAULT : options.gradient_types[i];
    type = type == MOMENT_TYPE_DEFAULT ? tensor.type : type;
    if (type > MOMENT_TYPE_FLOAT16) {
      return absl::InvalidArgumentError(
          absl::StrCat("gradient of tensor ", i, ": type ", type, " is not fp32, bf16 or fp16"));
    }
    plan.gradient_types[i] = type;
    if (!taking_part[i]) {
      continue;
    }
    const void* data = options.gradients == nullptr ? nullptr : options.gradients[i];
    if (data == nullptr && tensor.elements > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", i, " takes part in the step and has no gradient"));
    }
    // The ring only reads gradients; the table has one kind of pointer.
    plan.gradients[tensors.to_store(i)] = {static_cast<std::byte*>(const_cast<void*>(data)),
                                           data == nullptr ? 0 : tensor.elements * SizeBytes(type)};
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::OpenRequest> MakeOpenRequest(const moment_open_options& options) {
  if (options.job == nullptr || *options.job == '\0') {
    return absl::InvalidArgumentError("no job name: give one, it names the store for ever");
  }
  if ((options.tensors == nullptr && options.tensor_count > 0) ||
      (options.members == nullptr && options.member_count > 0)) {
    return absl::InvalidArgumentError("a count without its array");
  }
  v1::OpenRequest request;
  request.mutable_name()->set_job(options.job);
  request.mutable_name()->set_role(options.role == nullptr ? "model" : options.role);
  request.mutable_name()->set_rank(options.rank);
  AddMembers(options, request);
  MOMENT_CLIENT_RETURN_IF_ERROR(AddTensors(options, request));
  request.set_positional(options.positional != 0);
  request.set_profile(static_cast<v1::Profile>(options.profile));
  request.set_commit_every(options.commit_every);
  request.set_blob_limit_bytes(options.blob_limit_bytes);
  request.set_takeover(options.takeover != 0);
  request.set_resume(static_cast<v1::Resume>(options.resume));
  request.set_bucket_elements(options.bucket_elements);
  request.set_state_directory(options.state_directory == nullptr ? "" : options.state_directory);
  request.set_device(options.device == nullptr ? "host" : options.device);
  request.mutable_client()->set_version(moment_version());
  request.mutable_client()->set_pid(static_cast<uint32_t>(::getpid()));
  request.mutable_client()->set_host(HostName());
  request.mutable_client()->set_program(options.program == nullptr ? ProgramName()
                                                                   : options.program);
  return request;
}

std::vector<TensorMap::Tensor> DescribeTensors(const moment_open_options& options) {
  std::vector<TensorMap::Tensor> tensors(options.tensor_count);
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].elements = ElementsOf(options.tensors[i]).value_or(0);
    tensors[i].type = options.tensors[i].type == MOMENT_TYPE_DEFAULT ? MOMENT_TYPE_FLOAT32
                                                                     : options.tensors[i].type;
  }
  return tensors;
}

absl::StatusOr<StepPlan> MakeStepPlan(const TensorMap& tensors,
                                      const moment_step_options& options) {
  if ((options.groups == nullptr && options.group_count > 0) ||
      (options.blob == nullptr && options.blob_bytes > 0)) {
    return absl::InvalidArgumentError("a count without its array");
  }
  StepPlan plan;
  absl::StatusOr<std::vector<bool>> grouped = AddGroups(tensors, options, plan.request);
  MOMENT_CLIENT_RETURN_IF_ERROR(grouped.status());
  absl::StatusOr<std::vector<bool>> taking_part = Participants(tensors, options);
  MOMENT_CLIENT_RETURN_IF_ERROR(taking_part.status());
  bool all = true;
  for (size_t i = 0; i < tensors.size(); ++i) {
    (*taking_part)[i] = (*taking_part)[i] && (*grouped)[i];
    all = all && (*taking_part)[i] == (*grouped)[i];
  }
  if (!all) {
    *plan.request.mutable_participants() = tensors.ToStore(*taking_part);
  }
  MOMENT_CLIENT_RETURN_IF_ERROR(BindGradients(tensors, options, *taking_part, plan));
  if (options.blob_bytes > 0) {
    plan.request.set_blob(options.blob, options.blob_bytes);
  }
  return plan;
}

void FillGradientTypes(const TensorMap& tensors, const std::vector<moment_type>& types,
                       v1::AttachRequest& request) {
  for (const moment_type type : {MOMENT_TYPE_FLOAT32, MOMENT_TYPE_BFLOAT16, MOMENT_TYPE_FLOAT16}) {
    std::vector<bool> marked(tensors.size(), false);
    bool any = false;
    for (size_t i = 0; i < types.size(); ++i) {
      marked[i] = types[i] == type && types[i] != tensors.tensor(i).type;
      any = any || marked[i];
    }
    if (any) {
      v1::GradientType* out = request.add_gradient_types();
      out->set_type(static_cast<v1::DataType>(type));
      *out->mutable_tensors() = tensors.ToStore(marked);
    }
  }
}

namespace {

constexpr const char* kSegments[] = {"main", "exp_avg", "exp_avg_sq"};

// Listed buffers that are alike, and so stand in one message.
struct SegmentGroup {
  uint32_t segment = 0;
  moment_type type = MOMENT_TYPE_FLOAT32;
  bool zeros = false;
  std::vector<uint32_t> tensors;  // store indices
};

SegmentGroup& GroupOf(std::vector<SegmentGroup>& groups, uint32_t segment, moment_type type,
                      bool zeros) {
  for (SegmentGroup& group : groups) {
    if (group.segment == segment && group.type == type && group.zeros == zeros) {
      return group;
    }
  }
  groups.push_back({segment, type, zeros, {}});
  return groups.back();
}

absl::Status CheckBuffer(const TensorMap& tensors, const moment_buffer& buffer, bool writes) {
  if (buffer.tensor >= tensors.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", buffer.tensor, " of a store of ", tensors.size()));
  }
  const auto segment = static_cast<uint32_t>(buffer.segment);
  if (segment >= std::size(kSegments)) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", buffer.tensor, " has no segment ", segment));
  }
  if (buffer.type < MOMENT_TYPE_DEFAULT || buffer.type > MOMENT_TYPE_FLOAT16) {
    return absl::InvalidArgumentError(absl::StrCat(kSegments[segment], " of tensor ", buffer.tensor,
                                                   ": type ", buffer.type,
                                                   " is not fp32, bf16 or fp16"));
  }
  if (!writes && buffer.data == nullptr && tensors.tensor(buffer.tensor).elements > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(kSegments[segment], " of tensor ", buffer.tensor, " has no buffer"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SegmentPlan> MakeSegmentPlan(const TensorMap& tensors,
                                            absl::Span<const moment_buffer> buffers, bool writes) {
  SegmentPlan plan;
  plan.mains.resize(tensors.size());
  plan.buffers.reserve(buffers.size());
  std::vector<uint8_t> listed(tensors.size());  // a bit a segment
  std::vector<SegmentGroup> groups;
  for (size_t i = 0; i < buffers.size(); ++i) {
    const moment_buffer& from = buffers[i];
    if (absl::Status status = CheckBuffer(tensors, from, writes); !status.ok()) {
      return WithContext(status, absl::StrCat("buffer ", i));
    }
    const auto segment = static_cast<uint32_t>(from.segment);
    if ((listed[from.tensor] >> segment & 1) != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "buffer ", i, ": ", kSegments[segment], " of tensor ", from.tensor, " is listed twice"));
    }
    listed[from.tensor] = static_cast<uint8_t>(listed[from.tensor] | 1u << segment);
    const moment_type type = from.type == MOMENT_TYPE_DEFAULT ? MOMENT_TYPE_FLOAT32 : from.type;
    const bool zeros = writes && from.data == nullptr;
    const uint32_t store_index = tensors.to_store(from.tensor);
    GroupOf(groups, segment, type, zeros).tensors.push_back(store_index);
    plan.mains[from.tensor] = plan.mains[from.tensor] || segment == v1::RING_SEGMENT_MAIN;
    if (from.data != nullptr) {
      plan.buffers.push_back({store_index,
                              segment,
                              {static_cast<std::byte*>(from.data),
                               tensors.tensor(from.tensor).elements * SizeBytes(type)}});
    }
  }
  for (SegmentGroup& group : groups) {
    v1::SegmentBuffers* out = plan.request.Add();
    out->set_segment(kSegments[group.segment]);
    out->set_type(static_cast<v1::DataType>(group.type));
    out->set_zeros(group.zeros);
    *out->mutable_tensors() = TensorMap::SetOf(std::move(group.tensors));
  }
  return plan;
}

absl::StatusOr<google::protobuf::RepeatedPtrField<v1::ExpectedSteps>> MakeSteps(
    const TensorMap& tensors, absl::Span<const moment_tensor_steps> steps) {
  absl::flat_hash_map<uint64_t, std::vector<uint32_t>> by_t;  // store indices
  std::vector<bool> listed(tensors.size());
  for (const moment_tensor_steps& of : steps) {
    if (of.tensor >= tensors.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("t of tensor ", of.tensor, " of a store of ", tensors.size()));
    }
    if (listed[of.tensor]) {
      return absl::InvalidArgumentError(
          absl::StrCat("t of tensor ", of.tensor, " is listed twice"));
    }
    listed[of.tensor] = true;
    by_t[of.t].push_back(tensors.to_store(of.tensor));
  }
  google::protobuf::RepeatedPtrField<v1::ExpectedSteps> request;
  for (auto& [t, of_t] : by_t) {
    v1::ExpectedSteps* out = request.Add();
    out->set_t(t);
    *out->mutable_tensors() = TensorMap::SetOf(std::move(of_t));
  }
  return request;
}

absl::StatusOr<std::vector<Buffer>> MakeParameterBuffers(const TensorMap& tensors,
                                                         absl::Span<void* const> parameters) {
  if (parameters.size() != tensors.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parameters.size(), " parameter pointers for ", tensors.size(), " tensors"));
  }
  std::vector<Buffer> buffers(tensors.store_size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const TensorMap::Tensor& tensor = tensors.tensor(i);
    if (parameters[i] == nullptr && tensor.elements > 0) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", i, " has no parameter pointer"));
    }
    buffers[tensors.to_store(i)] = {static_cast<std::byte*>(parameters[i]),
                                    tensor.elements * SizeBytes(tensor.type)};
  }
  return buffers;
}

}  // namespace moment::client
