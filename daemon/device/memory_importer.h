#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "daemon/base/fd.h"

namespace moment::device {

// Memory of another process on the GPU that computes, mapped until this is destroyed. Until then
// the GPU's memory is held too, whatever the other process does. No chunk may use it when it is
// destroyed.
class ImportedMemory {
 public:
  virtual ~ImportedMemory() = default;

  virtual std::byte* data() const = 0;
  virtual uint64_t length_bytes() const = 0;
};

// Opens memory that other processes share. Thread-safe.
class MemoryImporter {
 public:
  virtual ~MemoryImporter() = default;

  // A legacy IPC handle (64 bytes) of an allocation. FAILED_PRECONDITION saying what to do if the
  // driver takes the other process for this one, INVALID_ARGUMENT for a handle of nothing.
  virtual absl::StatusOr<std::unique_ptr<ImportedMemory>> OpenHandle(absl::string_view handle) = 0;
  // VMM allocations of `chunk_bytes` each, mapped one after the other. The descriptors are not
  // needed after it. INVALID_ARGUMENT for a descriptor of something else, or of another size.
  virtual absl::StatusOr<std::unique_ptr<ImportedMemory>> MapDescriptors(
      const std::vector<base::UniqueFd>& chunks, uint64_t chunk_bytes) = 0;
};

}  // namespace moment::device
