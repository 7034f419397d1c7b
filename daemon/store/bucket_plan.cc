#include "daemon/store/bucket_plan.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "daemon/store/layout.h"
#include "daemon/store/layout_file.h"
#include "daemon/store/safetensors_header.h"

namespace moment::store {
namespace {

using MemberIndices = absl::flat_hash_map<std::string, uint32_t>;
using TensorIndices = absl::flat_hash_map<std::pair<uint32_t, std::string>, uint32_t>;

MemberIndices IndexMembers(const v1::Layout& layout) {
  MemberIndices indices;
  for (int i = 0; i < layout.members_size(); ++i) {
    indices.emplace(layout.members(i).name(), static_cast<uint32_t>(i));
  }
  return indices;
}

TensorIndices IndexTensors(const v1::Layout& layout) {
  TensorIndices indices;
  indices.reserve(static_cast<size_t>(layout.tensors_size()));
  for (int i = 0; i < layout.tensors_size(); ++i) {
    const v1::Tensor& tensor = layout.tensors(i);
    indices.emplace(std::pair(tensor.member(), tensor.name()), static_cast<uint32_t>(i));
  }
  return indices;
}

void AddMembers(const LayoutRequest& request, v1::Layout& layout) {
  const MemberIndices known = IndexMembers(layout);
  for (const v1::Member& member : request.members) {
    if (known.contains(member.name())) {
      continue;
    }
    v1::Member* added = layout.add_members();
    added->set_name(member.name());
    added->mutable_segments()->set_exp_avg(SegmentType(member, 1));
    added->mutable_segments()->set_exp_avg_sq(SegmentType(member, 2));
  }
}

// Index in `layout` of each member of the request.
std::vector<uint32_t> MapMembers(const v1::Layout& layout, const LayoutRequest& request) {
  const MemberIndices known = IndexMembers(layout);
  std::vector<uint32_t> indices;
  for (const v1::Member& member : request.members) {
    indices.push_back(known.at(member.name()));
  }
  return indices;
}

void AddTensors(const LayoutRequest& request, v1::Layout& layout) {
  const std::vector<uint32_t> members = MapMembers(layout, request);
  const TensorIndices known = IndexTensors(layout);
  for (const v1::Tensor& tensor : request.tensors) {
    const uint32_t member = members[tensor.member()];
    if (known.contains(std::pair(member, tensor.name()))) {
      continue;
    }
    v1::Tensor* added = layout.add_tensors();
    *added = tensor;
    added->set_member(member);
  }
}

// Fills the buckets of one member.
class BucketFiller {
 public:
  BucketFiller(v1::Layout& layout, uint32_t member, uint32_t first_number, uint64_t max_elements)
      : layout_(layout), member_(member), number_(first_number), max_elements_(max_elements) {}

  void Add(uint32_t index) {
    const v1::Tensor& tensor = layout_.tensors(static_cast<int>(index));
    const uint64_t elements = ElementCount(tensor);
    const uint64_t header_bytes = HeaderBytesBound(tensor);
    for (uint64_t offset = 0; offset < elements;) {
      MakeRoom(header_bytes);
      const uint64_t count = std::min(elements - offset, max_elements_ - elements_);
      AddSlice(index, offset, count, header_bytes);
      offset += count;
    }
  }

 private:
  void MakeRoom(uint64_t header_bytes) {
    const bool full =
        bucket_ != nullptr && (elements_ == max_elements_ ||
                               static_cast<uint64_t>(bucket_->slices_size()) == kMaxBucketTensors ||
                               header_bytes_ + header_bytes > kMaxHeaderBytes);
    if (bucket_ != nullptr && !full) {
      return;
    }
    bucket_ = layout_.add_buckets();
    bucket_->set_member(member_);
    bucket_->set_number(number_++);
    elements_ = 0;
    header_bytes_ = HeaderBaseBytesBound(layout_.members(static_cast<int>(member_)));
  }

  void AddSlice(uint32_t tensor, uint64_t offset, uint64_t count, uint64_t header_bytes) {
    v1::BucketSlice* slice = bucket_->add_slices();
    slice->set_tensor(tensor);
    slice->set_element_offset(offset);
    slice->set_element_count(count);
    elements_ += count;
    header_bytes_ += header_bytes;
  }

  v1::Layout& layout_;
  const uint32_t member_;
  uint32_t number_;
  const uint64_t max_elements_;
  v1::Bucket* bucket_ = nullptr;
  uint64_t elements_ = 0;
  uint64_t header_bytes_ = 0;
};

std::vector<uint32_t> NextBucketNumbers(const v1::Layout& layout) {
  std::vector<uint32_t> next(static_cast<size_t>(layout.members_size()), 0);
  for (const v1::Bucket& bucket : layout.buckets()) {
    next[bucket.member()] = std::max(next[bucket.member()], bucket.number() + 1);
  }
  return next;
}

void AddBuckets(uint32_t first_tensor, uint64_t bucket_elements, v1::Layout& layout) {
  const std::vector<uint32_t> numbers = NextBucketNumbers(layout);
  std::vector<std::vector<uint32_t>> by_member(numbers.size());
  for (int i = static_cast<int>(first_tensor); i < layout.tensors_size(); ++i) {
    by_member[layout.tensors(i).member()].push_back(static_cast<uint32_t>(i));
  }
  for (uint32_t member = 0; member < numbers.size(); ++member) {
    BucketFiller filler(layout, member, numbers[member], bucket_elements);
    for (const uint32_t tensor : by_member[member]) {
      filler.Add(tensor);
    }
  }
}

}  // namespace

v1::Layout PlanLayout(const v1::Layout* stored, const LayoutRequest& request) {
  v1::Layout layout;
  if (stored != nullptr) {
    layout = *stored;
  } else {
    layout.set_format_version(kLayoutFormatVersion);
    layout.set_profile(request.profile);
    layout.set_positional(request.positional);
  }
  const auto first_added = static_cast<uint32_t>(layout.tensors_size());
  AddMembers(request, layout);
  AddTensors(request, layout);
  AddBuckets(first_added,
             request.bucket_elements == 0 ? kMaxBucketElements : request.bucket_elements, layout);
  return layout;
}

std::vector<uint32_t> MapTensors(const v1::Layout& layout, const LayoutRequest& request) {
  const std::vector<uint32_t> members = MapMembers(layout, request);
  const TensorIndices known = IndexTensors(layout);
  std::vector<uint32_t> indices;
  indices.reserve(request.tensors.size());
  for (const v1::Tensor& tensor : request.tensors) {
    indices.push_back(known.at(std::pair(members[tensor.member()], tensor.name())));
  }
  return indices;
}

}  // namespace moment::store
