#include "daemon/device/ring_memory.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace moment::device {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint32_t kMaxSlots = 64;
constexpr uint32_t kMaxRuns = 1u << 20;
constexpr uint64_t kMaxSlotBytes = uint64_t{1} << 32;

absl::Status CheckGeometry(const RingGeometry& geometry) {
  if (geometry.slots == 0 || geometry.slots > kMaxSlots || geometry.max_runs == 0 ||
      geometry.max_runs > kMaxRuns || geometry.slot_bytes == 0 ||
      geometry.slot_bytes > kMaxSlotBytes || geometry.slot_bytes % kPageBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("ring of ", geometry.slots, " slots of ", geometry.slot_bytes, " bytes and ",
                     geometry.max_runs, " runs: 1 to ", kMaxSlots, " slots of whole pages up to ",
                     kMaxSlotBytes, " bytes and 1 to ", kMaxRuns, " runs are possible"));
  }
  return absl::OkStatus();
}

uint64_t CommandsOffset() { return sizeof(v1::RingHeader); }

uint64_t RunsOffset(const RingGeometry& geometry) {
  return CommandsOffset() + geometry.slots * sizeof(v1::RingCommand);
}

uint64_t ControlBytes(const RingGeometry& geometry) {
  return RunsOffset(geometry) + uint64_t{geometry.slots} * geometry.max_runs * sizeof(v1::RingRun);
}

// Not executable where the kernel knows the flag (6.3), since some systems refuse memfds without
// it.
int MemfdCreate(const char* name) {
  const int fd = ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (fd >= 0 || errno != EINVAL) {
    return fd;
  }
  return ::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

absl::StatusOr<base::UniqueFd> EventFd() {
  base::UniqueFd fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) {
    return base::ErrnoStatus(errno, "eventfd", "ring");
  }
  return fd;
}

}  // namespace

absl::StatusOr<RingMemory::Mapping> RingMemory::Mapping::Create(const char* name,
                                                                uint64_t length_bytes) {
  Mapping mapping;
  mapping.fd_ = base::UniqueFd(MemfdCreate(name));
  if (!mapping.fd_.valid()) {
    return base::ErrnoStatus(errno, "memfd_create", name);
  }
  const auto length = static_cast<off_t>(length_bytes);
  if (::ftruncate(mapping.fd(), length) != 0 || ::fallocate(mapping.fd(), 0, 0, length) != 0) {
    return base::ErrnoStatus(errno, absl::StrCat("allocate ", length_bytes, " bytes of"), name);
  }
  if (::fcntl(mapping.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return base::ErrnoStatus(errno, "seal", name);
  }
  void* data = ::mmap(nullptr, length_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, mapping.fd(), 0);
  if (data == MAP_FAILED) {
    return base::ErrnoStatus(errno, "mmap", name);
  }
  mapping.data_ = static_cast<std::byte*>(data);
  mapping.length_bytes_ = length_bytes;
  return mapping;
}

RingMemory::Mapping::Mapping(Mapping&& other) noexcept
    : fd_(std::move(other.fd_)),
      data_(std::exchange(other.data_, nullptr)),
      length_bytes_(std::exchange(other.length_bytes_, 0)) {}

RingMemory::Mapping& RingMemory::Mapping::operator=(Mapping&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(data_, other.data_);
  std::swap(length_bytes_, other.length_bytes_);
  return *this;
}

RingMemory::Mapping::~Mapping() {
  if (data_ != nullptr) {
    ::munmap(data_, length_bytes_);
  }
}

absl::StatusOr<RingMemory> RingMemory::Create(const RingGeometry& geometry) {
  MOMENT_RETURN_IF_ERROR(CheckGeometry(geometry));
  RingMemory memory;
  memory.geometry_ = geometry;
  MOMENT_ASSIGN_OR_RETURN(memory.control_,
                          Mapping::Create("moment-ring-control", ControlBytes(geometry)));
  MOMENT_ASSIGN_OR_RETURN(
      memory.slots_, Mapping::Create("moment-ring-slots", geometry.slots * geometry.slot_bytes));
  MOMENT_ASSIGN_OR_RETURN(memory.to_client_, EventFd());
  MOMENT_ASSIGN_OR_RETURN(memory.to_daemon_, EventFd());
  auto* header = new (memory.control_.data()) v1::RingHeader{};
  header->magic = MOMENT_RING_MAGIC;
  header->version = 1;
  header->slots = geometry.slots;
  header->slot_bytes = geometry.slot_bytes;
  header->max_runs = geometry.max_runs;
  return memory;
}

std::array<int, 4> RingMemory::descriptors() const {
  return {control_.fd(), slots_.fd(), to_client_.get(), to_daemon_.get()};
}

v1::RingHeader& RingMemory::header() const {
  return *reinterpret_cast<v1::RingHeader*>(control_.data());
}

v1::RingCommand& RingMemory::command(uint64_t entry) const {
  return reinterpret_cast<v1::RingCommand*>(control_.data() + CommandsOffset())[entry];
}

v1::RingRun* RingMemory::runs(uint64_t entry) const {
  return reinterpret_cast<v1::RingRun*>(control_.data() + RunsOffset(geometry_)) +
         entry * geometry_.max_runs;
}

std::span<std::byte> RingMemory::slot(uint32_t index) const {
  return {slots_.data() + index * geometry_.slot_bytes, geometry_.slot_bytes};
}

}  // namespace moment::device
