#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "cuda/owners.h"
#include "daemon/device/memory_importer.h"

namespace moment::cuda {

// Opens trainers' memory in the context, which outlives the importer and what it opened.
class CudaMemoryImporter : public device::MemoryImporter {
 public:
  explicit CudaMemoryImporter(const Context& context) : context_(context) {}

  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> OpenHandle(
      absl::string_view handle) override;
  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> MapDescriptors(
      const std::vector<base::UniqueFd>& chunks, uint64_t chunk_bytes) override;

 private:
  const Context& context_;
};

}  // namespace moment::cuda
