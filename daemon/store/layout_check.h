#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "moment/v1/disk.pb.h"

// What a member, a tensor, a layout must be. Pure; INVALID_ARGUMENT naming the first thing wrong.
namespace moment::store {

inline constexpr uint64_t kMaxNameBytes = 4096;  // of members and tensors
inline constexpr uint64_t kMaxTensors = 1'000'000;
inline constexpr uint64_t kMaxMembers = 1024;
inline constexpr uint64_t kMaxBuckets = 65'536;
inline constexpr uint64_t kMaxTensorElements = uint64_t{1} << 48;
inline constexpr int kMaxDimensions = 64;

// Job and role: 1 to 4,096 bytes of UTF-8 without NUL; rank below 100,000.
absl::Status CheckStoreName(const v1::StoreName& name);
absl::Status CheckName(absl::string_view what, absl::string_view name);
// fp32 main; moments of types that keep Adam's arithmetic.
absl::Status CheckMember(const v1::Member& member);
absl::Status CheckTensor(const v1::Tensor& tensor, uint64_t members);
// Names unique, members known, limits kept.
absl::Status CheckMembers(const google::protobuf::RepeatedPtrField<v1::Member>& members);
absl::Status CheckTensors(const google::protobuf::RepeatedPtrField<v1::Tensor>& tensors,
                          uint64_t members);
// Each tensor's elements lie once, in order, in buckets of its member, within the limits.
absl::Status CheckBuckets(const v1::Layout& layout);

}  // namespace moment::store
