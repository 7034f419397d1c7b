#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "daemon/base/fd.h"
#include "daemon/device/memory_importer.h"
#include "moment/v1/optimizer.pb.h"

namespace moment::session {

// The trainer's GPU memory that a session has open: one import an allocation, by what the trainer
// says identifies it (handle and buffer id, or its descriptors). What neither the attachment nor
// the last step names is closed before anything is opened, and a handle that was closed is never
// opened again without the trainer naming it anew. Not thread-safe; its session guards it, and no
// pass runs while it changes.
class Imports {
 public:
  enum class Holder { kAttachment, kStep };
  using Regions = google::protobuf::RepeatedPtrField<v1::Region>;
  // Descriptors that the trainer offered, by number; each is taken once.
  using TakeDescriptor = std::function<absl::StatusOr<base::UniqueFd>(uint32_t number)>;

  // `importer` (of the device `device`) outlives it; null: the device opens no memory.
  Imports(device::MemoryImporter* importer, std::string device)
      : importer_(importer), device_(std::move(device)) {}

  // What the holder names from here on. INVALID_ARGUMENT naming the region for what is malformed,
  // of another GPU or beyond its allocation; UNIMPLEMENTED where the device opens no memory; errors
  // of the importer. After an error the holder names nothing.
  absl::Status Hold(Holder holder, const Regions& regions, const TakeDescriptor& take);
  void Release(Holder holder) { OpenOf(holder).clear(); }

  // Where a region that is held begins in this process; null for one that the ring serves.
  std::byte* Find(const v1::Region& region) const;

  size_t count() const;  // allocations that are open

 private:
  using Open = std::map<std::string, std::shared_ptr<device::ImportedMemory>>;

  Open& OpenOf(Holder holder) { return holder == Holder::kAttachment ? attachment_ : step_; }
  absl::Status Check(const v1::Region& region) const;
  std::shared_ptr<device::ImportedMemory> FindOpen(const std::string& key) const;
  absl::Status OpenMissing(const Regions& regions, const TakeDescriptor& take, Open& open);
  absl::StatusOr<std::shared_ptr<device::ImportedMemory>> Import(const v1::Region& region,
                                                                 const TakeDescriptor& take) const;

  device::MemoryImporter* const importer_;
  const std::string device_;
  Open attachment_;
  Open step_;
};

}  // namespace moment::session
