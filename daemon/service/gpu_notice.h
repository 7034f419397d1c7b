#pragma once

#include <string>

namespace moment::service {

// What the daemon found about a GPU, or about all of them, when it started.
struct GpuNotice {
  std::string uuid;     // "": of no GPU
  std::string setting;  // "driver", or cuda::GpuNote's
  bool unused = false;  // the daemon does without the GPU because of it
  std::string text;
};

}  // namespace moment::service
