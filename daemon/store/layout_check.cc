#include "daemon/store/layout_check.h"

#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/store/layout.h"
#include "daemon/store/utf8.h"

namespace moment::store {
namespace {

absl::Status Wrong(const std::string& message) { return absl::InvalidArgumentError(message); }

constexpr absl::string_view kNarrowReason =
    "a plain fp8 cast flushes typical moments to zero and Adam degenerates to sign descent";
constexpr absl::string_view kHalfSquareReason =
    "its smallest step is 6e-8, so (1-beta2)*g*g rounds to 0 for |g| below 5e-3 and updates grow "
    "by orders of magnitude";

absl::Status CheckMomentType(const v1::Member& member, int segment) {
  const v1::DataType type = SegmentType(member, segment);
  const std::string what =
      absl::StrCat("member '", member.name(), "': segment ", SegmentName(segment), " of ",
                   v1::DataType_IsValid(type) ? v1::DataType_Name(type) : absl::StrCat(type));
  if (type == v1::DATA_TYPE_FLOAT8_E4M3 || type == v1::DATA_TYPE_FLOAT8_E5M2) {
    return Wrong(absl::StrCat(what, " is refused: ", kNarrowReason,
                              "; use FLOAT32, BFLOAT16 or (exp_avg alone) FLOAT16"));
  }
  if (type == v1::DATA_TYPE_FLOAT16 && segment == 2) {
    return Wrong(
        absl::StrCat(what, " is refused: ", kHalfSquareReason, "; use FLOAT32 or BFLOAT16"));
  }
  if (SizeBytes(type) == 0) {
    return Wrong(absl::StrCat(what, " is not a type of a segment"));
  }
  return absl::OkStatus();
}

// The product of extents, or nullopt where it exceeds what a tensor may have.
bool Multiply(uint64_t extent, uint64_t& product) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(product, extent, &result) || result > kMaxTensorElements) {
    return false;
  }
  product = result;
  return true;
}

absl::Status CheckShape(const v1::Tensor& tensor) {
  if (tensor.shape_size() > kMaxDimensions) {
    return Wrong(absl::StrCat("tensor '", tensor.name(), "' has ", tensor.shape_size(),
                              " dimensions, at most ", kMaxDimensions, " are possible"));
  }
  uint64_t elements = 1;
  for (const uint64_t extent : tensor.shape()) {
    if (!Multiply(extent == 0 ? 1 : extent, elements)) {
      return Wrong(absl::StrCat("tensor '", tensor.name(), "' has more than ", kMaxTensorElements,
                                " elements"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPiece(const std::string& what, const v1::ShardPiece& piece) {
  const int dimensions = piece.global_shape_size();
  if (piece.offset_size() != dimensions || piece.extent_size() != dimensions ||
      dimensions > kMaxDimensions) {
    return Wrong(absl::StrCat(what, ": global_shape, offset and extent differ in length"));
  }
  uint64_t box = 1;
  for (int i = 0; i < dimensions; ++i) {
    if (piece.extent(i) > piece.global_shape(i) ||
        piece.offset(i) > piece.global_shape(i) - piece.extent(i)) {
      return Wrong(absl::StrCat(what, ": the box leaves the global shape in dimension ", i));
    }
    if (!Multiply(piece.extent(i), box)) {
      return Wrong(absl::StrCat(what, ": the box has more than ", kMaxTensorElements, " elements"));
    }
  }
  if (piece.flat_count() > box || piece.flat_begin() > box - piece.flat_count()) {
    return Wrong(absl::StrCat(what, ": the flat range leaves the box of ", box, " elements"));
  }
  return absl::OkStatus();
}

absl::Status CheckShard(const v1::Tensor& tensor) {
  if (tensor.shard().pieces_size() == 0) {
    return absl::OkStatus();
  }
  uint64_t elements = 0;
  for (const v1::ShardPiece& piece : tensor.shard().pieces()) {
    MOMENT_RETURN_IF_ERROR(CheckPiece(
        absl::StrCat("tensor '", tensor.name(), "', shard of '", piece.key(), "'"), piece));
    elements += piece.flat_count();
  }
  if (elements != ElementCount(tensor)) {
    return Wrong(absl::StrCat("tensor '", tensor.name(), "' has ", ElementCount(tensor),
                              " elements, its shard ", elements));
  }
  return absl::OkStatus();
}

// Where the next slice of each tensor begins.
class SliceChecker {
 public:
  explicit SliceChecker(const v1::Layout& layout)
      : layout_(layout), next_(static_cast<size_t>(layout.tensors_size()), 0) {}

  absl::Status Add(const v1::Bucket& bucket, const std::string& what) {
    uint64_t elements = 0;
    for (const v1::BucketSlice& slice : bucket.slices()) {
      if (slice.tensor() >= next_.size()) {
        return Wrong(absl::StrCat(what, " names tensor ", slice.tensor(), " of ", next_.size()));
      }
      const v1::Tensor& tensor = layout_.tensors(static_cast<int>(slice.tensor()));
      uint64_t& next = next_[slice.tensor()];
      if (tensor.member() != bucket.member() || slice.element_count() == 0 ||
          slice.element_offset() != next || slice.element_count() > ElementCount(tensor) - next) {
        return Wrong(absl::StrCat(what, ": slice of tensor '", tensor.name(), "' at element ",
                                  slice.element_offset(), " does not follow the one before"));
      }
      next += slice.element_count();
      elements += slice.element_count();
    }
    if (elements == 0 || elements > kMaxBucketElements ||
        static_cast<uint64_t>(bucket.slices_size()) > kMaxBucketTensors) {
      return Wrong(
          absl::StrCat(what, " has ", elements, " elements in ", bucket.slices_size(), " slices"));
    }
    return absl::OkStatus();
  }

  absl::Status Finish() const {
    for (size_t i = 0; i < next_.size(); ++i) {
      const v1::Tensor& tensor = layout_.tensors(static_cast<int>(i));
      if (next_[i] != ElementCount(tensor)) {
        return Wrong(absl::StrCat("tensor '", tensor.name(), "': ", next_[i], " of ",
                                  ElementCount(tensor), " elements are in buckets"));
      }
    }
    return absl::OkStatus();
  }

 private:
  const v1::Layout& layout_;
  std::vector<uint64_t> next_;
};

}  // namespace

absl::Status CheckName(absl::string_view what, absl::string_view name) {
  if (name.empty()) {
    return Wrong(absl::StrCat(what, " is empty"));
  }
  if (name.size() > kMaxNameBytes) {
    return Wrong(absl::StrCat(what, " has ", name.size(), " bytes, at most ", kMaxNameBytes,
                              " are possible"));
  }
  if (!IsUtf8(name) || name.find('\0') != absl::string_view::npos) {
    return Wrong(absl::StrCat(what, " is not UTF-8 text without NUL"));
  }
  return absl::OkStatus();
}

absl::Status CheckStoreName(const v1::StoreName& name) {
  MOMENT_RETURN_IF_ERROR(CheckName("the job's name", name.job()));
  MOMENT_RETURN_IF_ERROR(CheckName("the role's name", name.role()));
  if (name.rank() >= 100'000) {
    return Wrong(absl::StrCat("rank ", name.rank(), " is above 99999"));
  }
  return absl::OkStatus();
}

absl::Status CheckMember(const v1::Member& member) {
  MOMENT_RETURN_IF_ERROR(CheckName("a member's name", member.name()));
  MOMENT_RETURN_IF_ERROR(CheckMomentType(member, 1));
  return CheckMomentType(member, 2);
}

absl::Status CheckTensor(const v1::Tensor& tensor, uint64_t members) {
  MOMENT_RETURN_IF_ERROR(CheckName("a tensor's name", tensor.name()));
  if (tensor.member() >= members) {
    return Wrong(absl::StrCat("tensor '", tensor.name(), "' names member ", tensor.member(), " of ",
                              members));
  }
  if (SizeBytes(tensor.parameter_type()) == 0) {
    return Wrong(absl::StrCat("tensor '", tensor.name(), "': parameters of ",
                              v1::DataType_Name(tensor.parameter_type()),
                              " are not supported; use FLOAT32, BFLOAT16 or FLOAT16"));
  }
  MOMENT_RETURN_IF_ERROR(CheckShape(tensor));
  return CheckShard(tensor);
}

absl::Status CheckMembers(const google::protobuf::RepeatedPtrField<v1::Member>& members) {
  if (static_cast<uint64_t>(members.size()) > kMaxMembers) {
    return Wrong(absl::StrCat(members.size(), " members, at most ", kMaxMembers, " are possible"));
  }
  absl::flat_hash_set<std::string> names;
  for (const v1::Member& member : members) {
    MOMENT_RETURN_IF_ERROR(CheckMember(member));
    if (!names.insert(member.name()).second) {
      return Wrong(absl::StrCat("member '", member.name(), "' is named twice"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTensors(const google::protobuf::RepeatedPtrField<v1::Tensor>& tensors,
                          uint64_t members) {
  if (static_cast<uint64_t>(tensors.size()) > kMaxTensors) {
    return Wrong(absl::StrCat(tensors.size(), " tensors, at most ", kMaxTensors, " are possible"));
  }
  absl::flat_hash_set<std::pair<uint32_t, absl::string_view>> names;
  for (const v1::Tensor& tensor : tensors) {
    MOMENT_RETURN_IF_ERROR(CheckTensor(tensor, members));
    if (!names.emplace(tensor.member(), tensor.name()).second) {
      return Wrong(absl::StrCat("tensor '", tensor.name(), "' is named twice in its member"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckBuckets(const v1::Layout& layout) {
  if (static_cast<uint64_t>(layout.buckets_size()) > kMaxBuckets) {
    return Wrong(absl::StrCat(layout.buckets_size(), " buckets, at most ", kMaxBuckets,
                              " are possible; raise bucket_elements"));
  }
  SliceChecker slices(layout);
  absl::flat_hash_set<std::pair<uint32_t, uint32_t>> numbers;
  for (const v1::Bucket& bucket : layout.buckets()) {
    if (bucket.member() >= static_cast<uint32_t>(layout.members_size())) {
      return Wrong(
          absl::StrCat("a bucket names member ", bucket.member(), " of ", layout.members_size()));
    }
    const std::string what =
        absl::StrCat("bucket ", bucket.number(), " of member '",
                     layout.members(static_cast<int>(bucket.member())).name(), "'");
    if (!numbers.emplace(bucket.member(), bucket.number()).second) {
      return Wrong(absl::StrCat(what, " is there twice"));
    }
    MOMENT_RETURN_IF_ERROR(slices.Add(bucket, what));
  }
  return slices.Finish();
}

}  // namespace moment::store
