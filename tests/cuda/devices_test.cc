// On any machine: with a GPU or without, with kernels in this build or without.
#include "cuda/cuda_devices.h"
#include "tests/support/catch.h"

namespace moment::cuda {
namespace {

TEST_CASE("FindGpus: names GPUs, or says in a sentence why there are none", "[cuda]") {
  const auto gpus = FindGpus();
  if (!gpus.ok()) {
    INFO(gpus.status().ToString());
    const std::string message(gpus.status().message());
    switch (gpus.status().code()) {
      case absl::StatusCode::kNotFound:
        CHECK_THAT(message, test::ContainsSubstring("NVIDIA driver"));
        break;
      case absl::StatusCode::kUnimplemented:
        CHECK_THAT(message, test::ContainsSubstring("nvcc"));
        break;
      case absl::StatusCode::kFailedPrecondition:
        CHECK_THAT(message, test::ContainsSubstring("newer"));
        break;
      default:
        FAIL("unexpected " << gpus.status());
    }
    CHECK(OpenGpu("GPU-00000000-0000-0000-0000-000000000000").status() == gpus.status());
    return;
  }
  REQUIRE_FALSE(gpus->empty());
  for (const Gpu& gpu : *gpus) {
    CHECK(gpu.uuid.size() == 40);
    CHECK_FALSE(gpu.model.empty());
  }
}

}  // namespace
}  // namespace moment::cuda
