#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/store/bucket_plan.h"
#include "daemon/store/layout.h"
#include "google/protobuf/util/message_differencer.h"

namespace moment::store {
namespace {

using google::protobuf::util::MessageDifferencer;

std::string ShapeText(const v1::Tensor& tensor) {
  return absl::StrCat("[", absl::StrJoin(tensor.shape(), ", "), "]");
}

std::string CompareHeads(const v1::Layout& stored, const LayoutRequest& request) {
  if (stored.profile() != request.profile) {
    return absl::StrCat("the store has profile ", v1::Profile_Name(stored.profile()),
                        ", the request ", v1::Profile_Name(request.profile));
  }
  if (stored.positional() != request.positional) {
    return absl::StrCat("the store is ", stored.positional() ? "" : "not ",
                        "positional, the request is ", request.positional ? "" : "not ",
                        "positional");
  }
  return "";
}

std::string CompareMember(const v1::Member& stored, const v1::Member& requested) {
  for (int segment = 0; segment < kSegmentCount; ++segment) {
    const v1::DataType is = SegmentType(stored, segment);
    const v1::DataType wanted = SegmentType(requested, segment);
    if (is != wanted) {
      return absl::StrCat("member '", stored.name(), "' has segment ", SegmentName(segment), " of ",
                          v1::DataType_Name(is), " in the store, of ", v1::DataType_Name(wanted),
                          " in the request");
    }
  }
  return "";
}

std::string CompareMembers(const v1::Layout& stored, const LayoutRequest& request) {
  absl::flat_hash_map<std::string, const v1::Member*> requested;
  for (const v1::Member& member : request.members) {
    requested.emplace(member.name(), &member);
  }
  for (const v1::Member& member : stored.members()) {
    const auto found = requested.find(member.name());
    if (found == requested.end()) {
      return absl::StrCat("member '", member.name(), "' of the store is not in the request");
    }
    if (std::string difference = CompareMember(member, *found->second); !difference.empty()) {
      return difference;
    }
  }
  return "";
}

std::string CompareTensor(const std::string& what, const v1::Tensor& stored,
                          const v1::Tensor& requested) {
  if (ShapeText(stored) != ShapeText(requested)) {
    return absl::StrCat(what, " has shape ", ShapeText(stored), " in the store, ",
                        ShapeText(requested), " in the request");
  }
  if (stored.parameter_type() != requested.parameter_type()) {
    return absl::StrCat(what, " is a parameter of ", v1::DataType_Name(stored.parameter_type()),
                        " in the store, of ", v1::DataType_Name(requested.parameter_type()),
                        " in the request");
  }
  if (!MessageDifferencer::Equals(stored.shard(), requested.shard())) {
    return absl::StrCat(what, " has shard {", stored.shard().ShortDebugString(),
                        "} in the store, {", requested.shard().ShortDebugString(),
                        "} in the request");
  }
  return "";
}

std::string CompareTensors(const v1::Layout& stored, const LayoutRequest& request) {
  using Key = std::pair<std::string, std::string>;  // member, name
  absl::flat_hash_map<Key, const v1::Tensor*> requested;
  for (const v1::Tensor& tensor : request.tensors) {
    requested.emplace(Key(request.members[tensor.member()].name(), tensor.name()), &tensor);
  }
  for (const v1::Tensor& tensor : stored.tensors()) {
    const std::string& member = stored.members(static_cast<int>(tensor.member())).name();
    const std::string what = absl::StrCat("tensor '", tensor.name(), "' of member '", member, "'");
    const auto found = requested.find(Key(member, tensor.name()));
    if (found == requested.end()) {
      return absl::StrCat(what, " of the store is not in the request");
    }
    if (std::string difference = CompareTensor(what, tensor, *found->second); !difference.empty()) {
      return difference;
    }
  }
  return "";
}

}  // namespace

std::string FirstDifference(const v1::Layout& stored, const LayoutRequest& request) {
  for (const auto compare : {CompareHeads, CompareMembers, CompareTensors}) {
    if (std::string difference = compare(stored, request); !difference.empty()) {
      return difference;
    }
  }
  return "";
}

}  // namespace moment::store
