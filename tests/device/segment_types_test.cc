#include "daemon/device/segment_types.h"

#include <string>

#include "tests/support/catch.h"

namespace moment::device {
namespace {

std::string Refusal(absl::string_view main, absl::string_view exp_avg,
                    absl::string_view exp_avg_sq) {
  const absl::Status status = CheckSegmentTypes(main, exp_avg, exp_avg_sq);
  CHECK(absl::IsInvalidArgument(status));
  return std::string(status.message());
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("CheckSegmentTypes: takes what Adam survives", "[device]") {
  for (const char* exp_avg : {"float32", "bfloat16", "float16"}) {
    for (const char* exp_avg_sq : {"float32", "bfloat16"}) {
      CHECK(CheckSegmentTypes("float32", exp_avg, exp_avg_sq).ok());
    }
  }
}

TEST_CASE("CheckSegmentTypes: refuses a float16 exp_avg_sq with the reason", "[device]") {
  const std::string refusal = Refusal("float32", "float32", "float16");
  CHECK(Contains(refusal, "exp_avg_sq cannot be float16"));
  CHECK(Contains(refusal, "smallest step is 6e-8"));
  const DataType types[] = {DataType::kFloat32, DataType::kFloat32, DataType::kFloat16};
  CHECK(CheckSegmentTypes(types).message() == refusal);
}

TEST_CASE("CheckSegmentTypes: refuses float8 by name for either moment", "[device]") {
  CHECK(Contains(Refusal("float32", "float8_e4m3", "float32"), "exp_avg cannot be float8_e4m3"));
  CHECK(Contains(Refusal("float32", "float32", "float8_e5m2"), "exp_avg_sq cannot be float8_e5m2"));
  CHECK(Contains(Refusal("float32", "float8_e4m3", "float32"), "sign descent"));
}

TEST_CASE("CheckSegmentTypes: refuses mains of another type, and unknown types", "[device]") {
  CHECK(Contains(Refusal("bfloat16", "float32", "float32"), "main cannot be bfloat16"));
  CHECK(Contains(Refusal("float32", "int8", "float32"), "exp_avg cannot be int8"));
}

}  // namespace
}  // namespace moment::device
