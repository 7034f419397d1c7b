#include "daemon/store/layout.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/bucket_plan.h"
#include "daemon/store/layout_check.h"
#include "daemon/store/layout_file.h"
#include "daemon/store/safetensors_header.h"

namespace moment::store {

const char* SegmentName(int segment) {
  switch (segment) {
    case 0:
      return "main";
    case 1:
      return "exp_avg";
    case 2:
      return "exp_avg_sq";
    default:
      return "";
  }
}

uint64_t SizeBytes(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FLOAT32:
      return 4;
    case v1::DATA_TYPE_BFLOAT16:
    case v1::DATA_TYPE_FLOAT16:
      return 2;
    default:
      return 0;
  }
}

uint64_t ElementCount(const v1::Tensor& tensor) {
  uint64_t elements = 1;
  for (const uint64_t extent : tensor.shape()) {
    elements *= extent;
  }
  return elements;
}

v1::DataType SegmentType(const v1::Member& member, int segment) {
  v1::DataType type = v1::DATA_TYPE_FLOAT32;
  if (segment == 1) {
    type = member.segments().exp_avg();
  } else if (segment == 2) {
    type = member.segments().exp_avg_sq();
  }
  return type == v1::DATA_TYPE_UNSPECIFIED ? v1::DATA_TYPE_FLOAT32 : type;
}

absl::StatusOr<std::shared_ptr<const Layout>> Layout::Create(v1::Layout proto) {
  if (proto.format_version() != kLayoutFormatVersion) {
    return absl::InvalidArgumentError(absl::StrCat("layout of format version ",
                                                   proto.format_version(), "; this program knows ",
                                                   kLayoutFormatVersion));
  }
  MOMENT_RETURN_IF_ERROR(CheckMembers(proto.members()));
  MOMENT_RETURN_IF_ERROR(
      CheckTensors(proto.tensors(), static_cast<uint64_t>(proto.members_size())));
  MOMENT_RETURN_IF_ERROR(CheckBuckets(proto));

  std::shared_ptr<Layout> layout(new Layout());
  layout->proto_ = std::move(proto);
  layout->digest_ = LayoutDigest(layout->proto_);
  for (const v1::Bucket& bucket : layout->proto_.buckets()) {
    layout->buckets_.push_back(BuildHeader(layout->proto_, bucket).geometry);
    layout->parameters_ += layout->buckets_.back().elements;
  }
  return std::shared_ptr<const Layout>(std::move(layout));
}

absl::Status CheckRequest(const LayoutRequest& request) {
  if (request.bucket_elements > kMaxBucketElements) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_elements is ", request.bucket_elements,
                                                   ", at most ", kMaxBucketElements,
                                                   " are possible"));
  }
  v1::Layout listed;
  listed.mutable_members()->Add(request.members.begin(), request.members.end());
  listed.mutable_tensors()->Add(request.tensors.begin(), request.tensors.end());
  MOMENT_RETURN_IF_ERROR(CheckMembers(listed.members()));
  MOMENT_RETURN_IF_ERROR(
      CheckTensors(listed.tensors(), static_cast<uint64_t>(listed.members_size())));
  const uint64_t per_bucket =
      request.bucket_elements == 0 ? kMaxBucketElements : request.bucket_elements;
  uint64_t buckets = 0;
  for (const v1::Tensor& tensor : request.tensors) {
    buckets += ElementCount(tensor) / per_bucket;
    if (buckets > kMaxBuckets) {
      return absl::InvalidArgumentError(absl::StrCat(
          "bucket_elements of ", per_bucket, " would make more than ", kMaxBuckets, " buckets"));
    }
  }
  return absl::OkStatus();
}

}  // namespace moment::store
