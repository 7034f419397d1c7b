#include "client/src/gpu_regions.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/errors.h"

namespace moment::client {
namespace {

constexpr size_t kHandleBytes = 64;
constexpr int kPosixDescriptor = 1;  // CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

CudaAddress AddressOf(const Buffer& buffer) { return reinterpret_cast<CudaAddress>(buffer.data); }

// The operator asks for copies: to find out whether sharing is at fault.
bool SharingIsOff() {
  const char* const wanted = std::getenv("MOMENTD_GPU_TRANSPORT");
  return wanted != nullptr && absl::string_view(wanted) == "ring";
}

absl::Status TooLong(uint32_t tensor, const Buffer& buffer, const GpuPointer& pointer) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the buffer of tensor ", tensor, " has ", buffer.length_bytes, " bytes, ",
      AddressOf(buffer) - pointer.base, " into an allocation of ", pointer.length_bytes));
}

}  // namespace

std::string SharedBuffers::Identity() const {
  v1::StepRequest all;
  *all.mutable_regions() = regions;
  *all.mutable_gradients() = locations;
  return all.SerializeAsString();
}

struct GpuRegions::Gpu {
  explicit Gpu(CudaContext made) : context(std::move(made)) {}
  CudaContext context;
  std::string uuid;
};

// VMM allocations of one size, side by side.
struct GpuRegions::ChunkRun {
  int ordinal = 0;
  CudaAddress base = 0;
  uint64_t chunk_bytes = 0;
  std::vector<uint64_t> handles;  // retained once each
  std::vector<uint32_t> descriptors;
  uint64_t buffer_id = 0;
  bool used[2] = {};  // by holder

  CudaAddress end() const { return base + handles.size() * chunk_bytes; }
  // `other` lies within this, in the same memory.
  bool Covers(const ChunkRun& other) const {
    if (other.ordinal != ordinal || other.chunk_bytes != chunk_bytes || other.base < base ||
        other.end() > end() || (other.base - base) % chunk_bytes != 0) {
      return false;
    }
    const auto first = handles.begin() + static_cast<ptrdiff_t>((other.base - base) / chunk_bytes);
    return std::equal(other.handles.begin(), other.handles.end(), first);
  }
};

struct GpuRegions::Description {
  SharedBuffers shared;
  uint32_t next_region = 0;
  // Region of an allocation that is shared by its handle.
  std::map<std::pair<CudaAddress, uint64_t>, uint32_t> by_allocation;
  struct Chunk {
    int ordinal = 0;
    uint64_t length_bytes = 0;
    uint64_t buffer_id = 0;
  };
  std::map<CudaAddress, Chunk> chunks;
  std::vector<std::pair<uint32_t, CudaAddress>> in_chunks;  // tensor, address
};

GpuRegions::GpuRegions(std::string device, Offer offer)
    : device_(std::move(device)), offer_(std::move(offer)) {}

GpuRegions::~GpuRegions() {
  for (const auto& run : runs_) {
    Drop(*run);
  }
}

void GpuRegions::Drop(ChunkRun& run) {
  for (const uint64_t handle : run.handles) {
    driver_->cuMemRelease(handle);
  }
  run.handles.clear();
}

absl::StatusOr<const GpuRegions::Gpu*> GpuRegions::GpuOf(int ordinal) {
  auto& gpu = gpus_[ordinal];
  if (gpu == nullptr) {
    absl::StatusOr<CudaContext> context = CudaContext::Retain(*driver_, ordinal);
    MOMENT_CLIENT_RETURN_IF_ERROR(context.status());
    auto made = std::make_unique<Gpu>(*std::move(context));
    absl::StatusOr<std::string> uuid = made->context.Uuid();
    MOMENT_CLIENT_RETURN_IF_ERROR(uuid.status());
    made->uuid = *std::move(uuid);
    gpu = std::move(made);
  }
  return gpu.get();
}

void GpuRegions::Release(Holder holder) {
  for (const auto& run : runs_) {
    run->used[static_cast<size_t>(holder)] = false;
  }
  DropUnused();
}

void GpuRegions::DropUnused() {
  for (auto& run : runs_) {
    if (!run->used[0] && !run->used[1]) {
      Drop(*run);
      run.reset();
    }
  }
  runs_.erase(std::remove(runs_.begin(), runs_.end(), nullptr), runs_.end());
}

absl::StatusOr<SharedBuffers> GpuRegions::Describe(Holder holder,
                                                   const std::vector<Buffer>& buffers,
                                                   uint32_t first_region) {
  Description description;
  description.next_region = first_region;
  driver_ = driver_ == nullptr ? CudaDriver::Loaded() : driver_;
  if (driver_ == nullptr || device_ == "host" || SharingIsOff()) {
    return description.shared;
  }
  for (uint32_t tensor = 0; tensor < buffers.size(); ++tensor) {
    const Buffer& buffer = buffers[tensor];
    if (buffer.gpu < 0 || buffer.length_bytes == 0) {
      continue;
    }
    const GpuPointer pointer = InspectPointer(*driver_, AddressOf(buffer));
    if (pointer.ordinal < 0) {
      continue;
    }
    absl::StatusOr<const Gpu*> gpu = GpuOf(pointer.ordinal);
    MOMENT_CLIENT_RETURN_IF_ERROR(gpu.status());
    if ((*gpu)->uuid != device_) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor, " lies on ", (*gpu)->uuid,
                                                     ", and its store is computed on ", device_,
                                                     ": give each GPU a store of its own"));
    }
    if (pointer.sharing == GpuSharing::kHandle) {
      MOMENT_CLIENT_RETURN_IF_ERROR(DescribeHandle(tensor, buffer, pointer, description));
    } else if (pointer.sharing == GpuSharing::kDescriptors) {
      absl::StatusOr<bool> added = AddChunks(buffer, pointer, description);
      MOMENT_CLIENT_RETURN_IF_ERROR(added.status());
      if (*added) {
        description.in_chunks.emplace_back(tensor, AddressOf(buffer));
      }
    }
  }
  MOMENT_CLIENT_RETURN_IF_ERROR(DescribeChunks(holder, description));
  return std::move(description.shared);
}

absl::Status GpuRegions::DescribeHandle(uint32_t tensor, const Buffer& buffer,
                                        const GpuPointer& pointer, Description& description) {
  const uint64_t offset = AddressOf(buffer) - pointer.base;
  if (buffer.length_bytes > pointer.length_bytes - offset) {
    return TooLong(tensor, buffer, pointer);
  }
  const auto [found, added] = description.by_allocation.try_emplace(
      {pointer.base, pointer.buffer_id}, description.next_region);
  if (added) {
    const Gpu& gpu = *gpus_[pointer.ordinal];
    std::array<char, kHandleBytes> handle = {};
    const CudaContext::Current current(gpu.context);
    MOMENT_CLIENT_RETURN_IF_ERROR(driver_->Check(
        driver_->cuIpcGetMemHandle(handle.data(), pointer.base), "share an allocation"));
    v1::Region& region = *description.shared.regions.Add();
    region.set_region(description.next_region++);
    region.set_length_bytes(pointer.length_bytes);
    region.set_buffer_id(pointer.buffer_id);
    region.mutable_cuda_ipc()->set_handle(handle.data(), handle.size());
    region.mutable_cuda_ipc()->set_device_uuid(gpu.uuid);
  }
  v1::TensorLocation& location = *description.shared.locations.Add();
  location.set_tensor(tensor);
  location.set_region(found->second);
  location.set_offset_bytes(offset);
  return absl::OkStatus();
}

// Notes the pieces that a buffer lies in. False if not all of them can be shared.
absl::StatusOr<bool> GpuRegions::AddChunks(const Buffer& buffer, GpuPointer pointer,
                                           Description& description) {
  const CudaAddress end = AddressOf(buffer) + buffer.length_bytes;
  const uint64_t chunk_bytes = pointer.length_bytes;
  std::vector<GpuPointer> pieces;
  while (pointer.ordinal >= 0 && pointer.sharing == GpuSharing::kDescriptors &&
         pointer.length_bytes == chunk_bytes) {
    pieces.push_back(pointer);
    const CudaAddress next = pointer.base + pointer.length_bytes;
    if (next >= end) {
      for (const GpuPointer& piece : pieces) {
        description.chunks[piece.base] = {piece.ordinal, piece.length_bytes, piece.buffer_id};
      }
      return true;
    }
    pointer = InspectPointer(*driver_, next);
  }
  return false;
}

absl::Status GpuRegions::DescribeChunks(Holder holder, Description& description) {
  for (const auto& run : runs_) {
    run->used[static_cast<size_t>(holder)] = false;
  }
  std::map<CudaAddress, std::pair<const ChunkRun*, uint32_t>> regions;  // by the run's end
  auto chunk = description.chunks.begin();
  while (chunk != description.chunks.end()) {
    ChunkRun wanted;
    wanted.ordinal = chunk->second.ordinal;
    wanted.base = chunk->first;
    wanted.chunk_bytes = chunk->second.length_bytes;
    wanted.buffer_id = chunk->second.buffer_id;
    for (; chunk != description.chunks.end() && chunk->first == wanted.end() &&
           chunk->second.length_bytes == wanted.chunk_bytes;
         ++chunk) {
      uint64_t handle = 0;
      const int result =
          driver_->cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(chunk->first));
      if (result != 0) {
        Drop(wanted);
        return driver_->Check(result, "share memory by descriptors");
      }
      wanted.handles.push_back(handle);
    }
    absl::StatusOr<const ChunkRun*> run = ShareRun(holder, std::move(wanted));
    MOMENT_CLIENT_RETURN_IF_ERROR(run.status());
    const auto [found, added] =
        regions.try_emplace((*run)->end(), std::pair(*run, description.next_region));
    if (!added) {
      continue;
    }
    v1::Region& region = *description.shared.regions.Add();
    region.set_region(description.next_region++);
    region.set_length_bytes((*run)->end() - (*run)->base);
    region.set_buffer_id((*run)->buffer_id);
    v1::CudaVmm& memory = *region.mutable_cuda_vmm();
    memory.mutable_descriptors()->Assign((*run)->descriptors.begin(), (*run)->descriptors.end());
    memory.set_chunk_bytes((*run)->chunk_bytes);
    memory.set_device_uuid(device_);
  }
  DropUnused();
  for (const auto& [tensor, address] : description.in_chunks) {
    const auto& [run, region] = regions.upper_bound(address)->second;
    v1::TensorLocation& location = *description.shared.locations.Add();
    location.set_tensor(tensor);
    location.set_region(region);
    location.set_offset_bytes(address - run->base);
  }
  return absl::OkStatus();
}

// The run among those that the daemon has, or offered to it now.
absl::StatusOr<const GpuRegions::ChunkRun*> GpuRegions::ShareRun(Holder holder, ChunkRun wanted) {
  for (const auto& run : runs_) {
    if (run->Covers(wanted)) {
      Drop(wanted);
      run->used[static_cast<size_t>(holder)] = true;
      return run.get();
    }
  }
  if (const absl::Status status = OfferRun(wanted); !status.ok()) {
    Drop(wanted);
    return status;
  }
  wanted.used[static_cast<size_t>(holder)] = true;
  runs_.push_back(std::make_unique<ChunkRun>(std::move(wanted)));
  return runs_.back().get();
}

absl::Status GpuRegions::OfferRun(ChunkRun& run) {
  std::vector<UniqueFd> chunks;
  for (const uint64_t handle : run.handles) {
    int descriptor = -1;
    MOMENT_CLIENT_RETURN_IF_ERROR(driver_->Check(
        driver_->cuMemExportToShareableHandle(&descriptor, handle, kPosixDescriptor, 0),
        "export a descriptor"));
    chunks.emplace_back(descriptor);
  }
  absl::StatusOr<uint32_t> first = offer_(chunks);
  MOMENT_CLIENT_RETURN_IF_ERROR(first.status());
  for (uint32_t i = 0; i < run.handles.size(); ++i) {
    run.descriptors.push_back(*first + i);
  }
  return absl::OkStatus();
}

void FindGpus(std::vector<Buffer>& buffers) {
  const CudaDriver* const driver = CudaDriver::Loaded();
  for (Buffer& buffer : buffers) {
    buffer.gpu = driver == nullptr || buffer.data == nullptr
                     ? -1
                     : InspectPointer(*driver, AddressOf(buffer)).ordinal;
  }
}

}  // namespace moment::client
