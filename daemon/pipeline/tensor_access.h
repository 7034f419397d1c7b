#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "daemon/device/device.h"
#include "daemon/store/layout.h"

namespace moment::pipeline {

// What a Read or Write does with one segment of a tensor.
enum class Access : uint8_t {
  kNone,    // nothing: a Write keeps it
  kBuffer,  // moves it to or from the trainer's buffer
  kZeros,   // Write: it becomes zero
};

// By segment.
struct TensorAccess {
  Access access[store::kSegmentCount] = {};
  device::DataType types[store::kSegmentCount] = {};  // of the buffers' elements

  bool Any(Access wanted) const {
    return std::find(std::begin(access), std::end(access), wanted) != std::end(access);
  }
  // Some segment is moved or zeroed.
  bool any() const { return Any(Access::kBuffer) || Any(Access::kZeros); }
  bool all() const { return !Any(Access::kNone); }
};

}  // namespace moment::pipeline
