#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "google/protobuf/repeated_field.h"
#include "moment/v1/disk.pb.h"

// Tensors -> buckets, and what a client asks for against what is stored. Pure functions.
namespace moment::store {

struct LayoutRequest {
  std::vector<v1::Member> members;
  std::vector<v1::Tensor> tensors;  // in the client's order
  bool positional = false;
  v1::Profile profile = v1::PROFILE_TORCH_CPU;
  uint64_t bucket_elements = 0;  // of buckets that are made; 0: kMaxBucketElements
};

// The layout of a store: that of the request alone (`stored` null), or the stored one with what the
// request adds behind it: members, tensors and buckets keep their indices. A bucket closes at
// bucket_elements, kMaxBucketTensors slices or kMaxHeaderBytes of header; a tensor goes on in the
// next bucket of its member; empty tensors are in none. The request has passed CheckRequest, and is
// a superset of `stored` (FirstDifference).
v1::Layout PlanLayout(const v1::Layout* stored, const LayoutRequest& request);

// INVALID_ARGUMENT naming the first member or tensor of the request that no store can hold.
absl::Status CheckRequest(const LayoutRequest& request);

// What of the stored layout the request does not have, or has otherwise: one sentence, the first
// difference; empty if the request is the stored layout or a superset of it.
std::string FirstDifference(const v1::Layout& stored, const LayoutRequest& request);

// Store index of each tensor of the request in `layout`, which was planned for it.
std::vector<uint32_t> MapTensors(const v1::Layout& layout, const LayoutRequest& request);

}  // namespace moment::store
