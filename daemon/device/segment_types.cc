#include "daemon/device/segment_types.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::device {
namespace {

absl::Status Refuse(absl::string_view segment, absl::string_view type, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat("segment ", segment, " cannot be ", type, ": ", reason));
}

absl::Status CheckMoment(absl::string_view segment, absl::string_view type) {
  if (type == Name(DataType::kFloat32) || type == Name(DataType::kBFloat16)) {
    return absl::OkStatus();
  }
  if (absl::StartsWith(type, "float8")) {
    return Refuse(segment, type,
                  "its smallest step is far above typical moments, so a plain cast flushes them to "
                  "zero and Adam degenerates to sign descent; use bfloat16 or float32");
  }
  return Refuse(segment, type, "moments are float32 or bfloat16, exp_avg also float16");
}

}  // namespace

absl::string_view Name(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kBFloat16:
      return "bfloat16";
    case DataType::kFloat16:
      return "float16";
  }
  return "unknown";
}

absl::Status CheckSegmentTypes(absl::string_view main, absl::string_view exp_avg,
                               absl::string_view exp_avg_sq) {
  if (main != Name(DataType::kFloat32)) {
    return Refuse("main", main, "the parameters that Adam updates are kept in float32");
  }
  if (exp_avg != Name(DataType::kFloat16)) {
    MOMENT_RETURN_IF_ERROR(CheckMoment("exp_avg", exp_avg));
  }
  if (exp_avg_sq == Name(DataType::kFloat16)) {
    return Refuse("exp_avg_sq", exp_avg_sq,
                  "its smallest step is 6e-8, so (1 - beta2) * g * g rounds to zero for |g| below "
                  "5e-3 and updates grow without bound; use bfloat16 or float32");
  }
  return CheckMoment("exp_avg_sq", exp_avg_sq);
}

absl::Status CheckSegmentTypes(std::span<const DataType, kSegmentCount> types) {
  return CheckSegmentTypes(Name(types[kMain]), Name(types[kExpAvg]), Name(types[kExpAvgSq]));
}

}  // namespace moment::device
