// The main of the tests that need a GPU: without one they say so and exit with 77 (skipped).
#include <iostream>

#include "cuda/cuda_devices.h"

#if __has_include(<catch2/catch_session.hpp>)
#include <catch2/catch_session.hpp>
#else
#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#endif

namespace {

constexpr int kSkipped = 77;

}  // namespace

int main(int argc, char** argv) {
  const auto gpus = moment::cuda::FindGpus();
  if (!gpus.ok()) {
    std::cout << "skipped: " << gpus.status().message() << std::endl;
    return kSkipped;
  }
  for (const moment::cuda::Gpu& gpu : *gpus) {
    std::cout << gpu.uuid << " " << gpu.model << std::endl;
  }
  return Catch::Session().run(argc, argv);
}
