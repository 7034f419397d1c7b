#include "daemon/session/imports.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "daemon/base/errors.h"

namespace moment::session {
namespace {

constexpr int kMostDescriptors = 65536;
constexpr uint64_t kLargestChunk = uint64_t{1} << 40;

bool OfRing(const v1::Region& region) { return region.memory_case() == v1::Region::kRing; }

// What identifies the allocation.
std::string KeyOf(const v1::Region& region) {
  if (region.has_cuda_ipc()) {
    return absl::StrCat("handle ", region.buffer_id(), " ", region.cuda_ipc().handle());
  }
  return absl::StrCat("descriptors ", absl::StrJoin(region.cuda_vmm().descriptors(), " "));
}

uint64_t OffsetOf(const v1::Region& region) {
  return region.has_cuda_ipc() ? region.cuda_ipc().offset_bytes()
                               : region.cuda_vmm().offset_bytes();
}

absl::Status CheckRange(const v1::Region& region, uint64_t length_bytes) {
  const uint64_t offset = OffsetOf(region);
  if (offset > length_bytes || region.length_bytes() > length_bytes - offset) {
    return absl::InvalidArgumentError(absl::StrCat("it has ", region.length_bytes(),
                                                   " bytes at offset ", offset,
                                                   " of an allocation of ", length_bytes));
  }
  return absl::OkStatus();
}

std::string Name(const v1::Region& region) { return absl::StrCat("region ", region.region()); }

}  // namespace

absl::Status Imports::Check(const v1::Region& region) const {
  switch (region.memory_case()) {
    case v1::Region::kRing:
      return absl::OkStatus();
    case v1::Region::kCudaIpc:
    case v1::Region::kCudaVmm:
      break;
    default:
      return absl::InvalidArgumentError("it does not say how it is reached");
  }
  if (importer_ == nullptr) {
    return absl::UnimplementedError(absl::StrCat("it is GPU memory, which the device ", device_,
                                                 " cannot import: serve it by the ring"));
  }
  const std::string& uuid =
      region.has_cuda_ipc() ? region.cuda_ipc().device_uuid() : region.cuda_vmm().device_uuid();
  if (uuid != device_) {
    return absl::InvalidArgumentError(
        absl::StrCat("it lies on ", uuid, ", and this store is computed on ", device_));
  }
  if (region.has_cuda_vmm() && (region.cuda_vmm().descriptors_size() > kMostDescriptors ||
                                region.cuda_vmm().chunk_bytes() > kLargestChunk)) {
    return absl::InvalidArgumentError("its descriptors are more than a GPU can hold");
  }
  return absl::OkStatus();
}

absl::Status Imports::Hold(Holder holder, const Regions& regions, const TakeDescriptor& take) {
  Open kept;
  for (const v1::Region& region : regions) {
    if (const absl::Status status = Check(region); !status.ok()) {
      Release(holder);
      return base::WithContext(status, Name(region));
    }
    if (OfRing(region)) {
      continue;
    }
    if (auto open = FindOpen(KeyOf(region)); open != nullptr) {
      kept.emplace(KeyOf(region), std::move(open));
    }
  }
  OpenOf(holder) = std::move(kept);
  const absl::Status status = OpenMissing(regions, take, OpenOf(holder));
  if (!status.ok()) {
    Release(holder);
  }
  return status;
}

absl::Status Imports::OpenMissing(const Regions& regions, const TakeDescriptor& take, Open& open) {
  for (const v1::Region& region : regions) {
    if (OfRing(region)) {
      continue;
    }
    auto& import = open[KeyOf(region)];
    if (import == nullptr) {
      absl::StatusOr<std::shared_ptr<device::ImportedMemory>> made = Import(region, take);
      MOMENT_RETURN_IF_ERROR(base::WithContext(made.status(), Name(region)));
      import = *std::move(made);
    }
    MOMENT_RETURN_IF_ERROR(
        base::WithContext(CheckRange(region, import->length_bytes()), Name(region)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<device::ImportedMemory>> Imports::Import(
    const v1::Region& region, const TakeDescriptor& take) const {
  if (region.has_cuda_ipc()) {
    return importer_->OpenHandle(region.cuda_ipc().handle());
  }
  std::vector<base::UniqueFd> chunks;
  for (const uint32_t number : region.cuda_vmm().descriptors()) {
    MOMENT_ASSIGN_OR_RETURN(base::UniqueFd chunk, take(number));
    chunks.push_back(std::move(chunk));
  }
  return importer_->MapDescriptors(chunks, region.cuda_vmm().chunk_bytes());
}

std::shared_ptr<device::ImportedMemory> Imports::FindOpen(const std::string& key) const {
  for (const Open* open : {&attachment_, &step_}) {
    if (const auto found = open->find(key); found != open->end()) {
      return found->second;
    }
  }
  return nullptr;
}

std::byte* Imports::Find(const v1::Region& region) const {
  if (OfRing(region)) {
    return nullptr;
  }
  const auto open = FindOpen(KeyOf(region));
  return open == nullptr ? nullptr : open->data() + OffsetOf(region);
}

size_t Imports::count() const {
  Open all = attachment_;
  all.insert(step_.begin(), step_.end());
  return all.size();
}

}  // namespace moment::session
