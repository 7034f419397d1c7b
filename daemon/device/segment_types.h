#pragma once

#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "daemon/device/device.h"
#include "daemon/device/types.h"

namespace moment::device {

// "float32", "bfloat16", "float16".
absl::string_view Name(DataType type);

// INVALID_ARGUMENT naming the segment, its type and the reason, unless the kernels compute with
// these types and Adam survives them: main float32; exp_avg float32, bfloat16 or float16;
// exp_avg_sq float32 or bfloat16. Types are given by name, "float8_e4m3" and "float8_e5m2" too, so
// that what no DataType stands for is refused by name.
absl::Status CheckSegmentTypes(absl::string_view main, absl::string_view exp_avg,
                               absl::string_view exp_avg_sq);
absl::Status CheckSegmentTypes(std::span<const DataType, kSegmentCount> types);

}  // namespace moment::device
