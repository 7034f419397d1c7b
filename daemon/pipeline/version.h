#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "daemon/store/store.h"

namespace moment::pipeline {

// A bucket's file while its chunks are being written. Shared by the frames whose bytes belong to it
// and by the versions that name it; belongs to the loop's thread.
struct TargetImage {
  std::shared_ptr<store::BucketImage> image;
  bool main_only = false;  // the moments are zero, and so is the fresh file
  bool wanted = false;     // a version that names it is to be committed
  uint32_t unwritten = 0;  // chunks that are not in the file
};

using Targets = std::vector<std::shared_ptr<TargetImage>>;  // by bucket; null: complete

// A state that was applied, with what a commit of it takes.
struct Version {
  std::shared_ptr<const store::State> state;
  std::unique_ptr<store::Mutation> mutation;  // until the commit takes it
  Targets targets;
  bool wanted = false;
  bool committing = false;
  bool durable = false;

  bool complete() const {
    for (const auto& target : targets) {
      if (target != nullptr && target->unwritten > 0) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace moment::pipeline
