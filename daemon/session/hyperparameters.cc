#include "daemon/session/hyperparameters.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "daemon/base/errors.h"

namespace moment::session {
namespace {

// `value` must be in [0, limit) and a finite fp32 number.
absl::Status CheckRange(int group, absl::string_view field, double value, double limit) {
  if (!std::isfinite(value) || value < 0 || value >= limit ||
      value > std::numeric_limits<float>::max()) {
    const std::string range =
        std::isinf(limit) ? "at least 0 and finite" : absl::StrCat("in [0, ", limit, ")");
    return absl::InvalidArgumentError(
        absl::StrCat("group ", group, ": ", field, " is ", value, "; it must be ", range));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<device::Hyperparameters> CheckHyperparameters(const v1::Hyperparameters& wire,
                                                             int group) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  MOMENT_RETURN_IF_ERROR(CheckRange(group, "lr", wire.lr(), kNoLimit));
  MOMENT_RETURN_IF_ERROR(CheckRange(group, "beta1", wire.beta1(), 1));
  MOMENT_RETURN_IF_ERROR(CheckRange(group, "beta2", wire.beta2(), 1));
  MOMENT_RETURN_IF_ERROR(CheckRange(group, "eps", wire.eps(), kNoLimit));
  MOMENT_RETURN_IF_ERROR(CheckRange(group, "weight_decay", wire.weight_decay(), kNoLimit));
  const float scale = wire.has_gradient_scale() ? wire.gradient_scale() : 1.0f;
  if (!std::isfinite(scale)) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", group, ": gradient_scale is ", scale, "; it must be finite"));
  }
  if (wire.mode() != v1::ADAM_MODE_ADAMW && wire.mode() != v1::ADAM_MODE_ADAM) {
    return absl::InvalidArgumentError(absl::StrCat("group ", group, ": mode is ",
                                                   static_cast<int>(wire.mode()),
                                                   "; it must be ADAMW or ADAM"));
  }
  device::Hyperparameters result;
  result.lr = wire.lr();
  result.beta1 = wire.beta1();
  result.beta2 = wire.beta2();
  result.eps = wire.eps();
  result.weight_decay = wire.weight_decay();
  result.mode =
      wire.mode() == v1::ADAM_MODE_ADAMW ? device::AdamMode::kAdamW : device::AdamMode::kAdam;
  result.bias_correction = !wire.no_bias_correction();
  result.maximize = wire.maximize();
  result.gradient_scale = scale;
  return result;
}

}  // namespace moment::session
