// What is asked of the management library, and what happens where it does not answer.
#include "cuda/nvml.h"

#include <cstdlib>

#include "tests/support/catch.h"

namespace moment::cuda {
namespace {

absl::StatusOr<std::unique_ptr<Nvml>> LoadFake(const char* fault = "") {
  ::setenv("FAKE_NVML", fault, 1);
  return Nvml::LoadFrom(FAKE_NVML_LIBRARY);
}

TEST_CASE("Nvml: answers are passed on", "[cuda]") {
  const auto nvml = LoadFake();
  REQUIRE(nvml.ok());
  CHECK((*nvml)->DriverVersion() == "580.1.2");
  CHECK((*nvml)->Confidential() == false);
  CHECK((*nvml)->UsedBytes("GPU-1") == 400u);
}

TEST_CASE("Nvml: confidential computing is seen", "[cuda]") {
  const auto nvml = LoadFake("confidential");
  REQUIRE(nvml.ok());
  CHECK((*nvml)->Confidential() == true);
}

TEST_CASE("Nvml: what it refuses to tell is absent", "[cuda]") {
  {
    const auto nvml = LoadFake("driver");
    REQUIRE(nvml.ok());
    CHECK_FALSE((*nvml)->DriverVersion().has_value());
    CHECK_FALSE((*nvml)->UsedBytes("GPU-2").has_value());
  }
  const auto nvml = LoadFake("confidential-state");
  REQUIRE(nvml.ok());
  CHECK_FALSE((*nvml)->Confidential().has_value());
}

TEST_CASE("Nvml: without the library, or one that does not start, the reason is said", "[cuda]") {
  const auto missing = Nvml::LoadFrom("/nowhere/libnvidia-ml.so.1");
  CHECK(absl::IsNotFound(missing.status()));
  CHECK_THAT(std::string(missing.status().message()), test::ContainsSubstring("/nowhere"));
  const auto refused = LoadFake("init");
  CHECK(absl::IsUnavailable(refused.status()));
  CHECK_THAT(std::string(refused.status().message()), test::ContainsSubstring("999"));
  CHECK(absl::IsUnavailable(Nvml::LoadFrom("libm.so.6").status()));
}

}  // namespace
}  // namespace moment::cuda
