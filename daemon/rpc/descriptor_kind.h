#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/moment/v1/descriptors.h"

namespace moment::rpc {

// What a descriptor is, by the kernel's word: "a pidfd", "a regular file", "a directory", ...
std::string DescribeDescriptor(int fd);

// INVALID_ARGUMENT naming what it is instead if a descriptor is not of the kind that was said;
// UNIMPLEMENTED for kinds that this build cannot use.
absl::Status CheckDescriptorKind(int fd, v1::DescriptorKind kind);

}  // namespace moment::rpc
