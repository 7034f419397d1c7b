#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/device/memory_importer.h"

namespace moment::cuda {

// Another importer, whose errors are seen by `watch` before the caller sees them: a GPU that was
// lost while nothing computed shows here first.
class WatchedImporter : public device::MemoryImporter {
 public:
  using Watch = std::function<void(const absl::Status&)>;

  // `importer` outlives it.
  WatchedImporter(device::MemoryImporter& importer, Watch watch)
      : importer_(importer), watch_(std::move(watch)) {}

  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> OpenHandle(
      absl::string_view handle) override {
    auto opened = importer_.OpenHandle(handle);
    watch_(opened.status());
    return opened;
  }
  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> MapDescriptors(
      const std::vector<base::UniqueFd>& chunks, uint64_t chunk_bytes) override {
    auto mapped = importer_.MapDescriptors(chunks, chunk_bytes);
    watch_(mapped.status());
    return mapped;
  }

 private:
  device::MemoryImporter& importer_;
  const Watch watch_;
};

}  // namespace moment::cuda
