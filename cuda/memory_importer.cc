#include "cuda/memory_importer.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"

namespace moment::cuda {
namespace {

std::byte* Pointer(CUdeviceptr address) { return reinterpret_cast<std::byte*>(address); }

// An allocation opened by its handle.
class OpenedHandle : public device::ImportedMemory {
 public:
  OpenedHandle(const Context& context, CUdeviceptr address)
      : context_(context), address_(address) {}
  ~OpenedHandle() override {
    const ContextGuard guard(context_);
    context_.driver().cuIpcCloseMemHandle(address_);
  }

  // Until this succeeds no byte is in reach.
  absl::Status FindLength() {
    CUdeviceptr base = 0;
    size_t size = 0;
    const Driver& driver = context_.driver();
    MOMENT_RETURN_IF_ERROR(driver.Check(driver.cuMemGetAddressRange(&base, &size, address_),
                                        "get the size of", "a trainer's allocation"));
    if (base > address_ || address_ - base > size) {
      return absl::InternalError("the driver opened a trainer's allocation outside of its range");
    }
    length_bytes_ = size - (address_ - base);
    return absl::OkStatus();
  }

  std::byte* data() const override { return Pointer(address_); }
  uint64_t length_bytes() const override { return length_bytes_; }

 private:
  const Context& context_;
  const CUdeviceptr address_;
  uint64_t length_bytes_ = 0;
};

// VMM allocations mapped side by side.
class MappedChunks : public device::ImportedMemory {
 public:
  MappedChunks(const Context& context, uint64_t chunk_bytes)
      : context_(context), chunk_bytes_(chunk_bytes) {}
  ~MappedChunks() override {
    const Driver& driver = context_.driver();
    const ContextGuard guard(context_);
    for (uint64_t i = 0; i < mapped_; ++i) {
      driver.cuMemUnmap(address_ + i * chunk_bytes_, chunk_bytes_);
    }
    if (address_ != 0) {
      driver.cuMemAddressFree(address_, reserved_bytes_);
    }
  }

  absl::Status Map(const std::vector<base::UniqueFd>& chunks) {
    const Driver& driver = context_.driver();
    reserved_bytes_ = chunks.size() * chunk_bytes_;
    MOMENT_RETURN_IF_ERROR(
        driver.Check(driver.cuMemAddressReserve(&address_, reserved_bytes_, 0, 0, 0),
                     "reserve addresses for", absl::StrCat(reserved_bytes_, " bytes")));
    for (const base::UniqueFd& chunk : chunks) {
      MOMENT_RETURN_IF_ERROR(MapNext(chunk));
    }
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = context_.gpu();
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return driver.Check(driver.cuMemSetAccess(address_, reserved_bytes_, &access, 1),
                        "get access to", "a trainer's memory");
  }

  std::byte* data() const override { return Pointer(address_); }
  uint64_t length_bytes() const override { return reserved_bytes_; }

 private:
  absl::Status MapNext(const base::UniqueFd& chunk) {
    const Driver& driver = context_.driver();
    const auto check = [&driver](CUresult result, absl::string_view what) {
      const absl::Status status = driver.Check(result, what, "a descriptor of a trainer's memory");
      return result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE
                 ? absl::InvalidArgumentError(status.message())
                 : status;
    };
    CUmemGenericAllocationHandle handle = 0;
    void* const descriptor = reinterpret_cast<void*>(static_cast<uintptr_t>(chunk.get()));
    MOMENT_RETURN_IF_ERROR(check(driver.cuMemImportFromShareableHandle(
                                     &handle, descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                                 "import"));
    const CUresult mapped =
        driver.cuMemMap(address_ + mapped_ * chunk_bytes_, chunk_bytes_, 0, handle, 0);
    driver.cuMemRelease(handle);  // the mapping holds the memory
    MOMENT_RETURN_IF_ERROR(check(mapped, absl::StrCat("map ", chunk_bytes_, " bytes of")));
    ++mapped_;
    return absl::OkStatus();
  }

  const Context& context_;
  const uint64_t chunk_bytes_;
  CUdeviceptr address_ = 0;
  uint64_t reserved_bytes_ = 0;
  uint64_t mapped_ = 0;
};

// The driver compares process numbers, not processes.
constexpr absl::string_view kSameNumber =
    "the driver takes the trainer for this daemon, since both have the same process number in "
    "their PID namespaces: let them share one (Kubernetes: shareProcessNamespace, or hostPID; "
    "Docker: --pid), start one of them behind an init, or let torch share descriptors "
    "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)";

}  // namespace

absl::StatusOr<std::unique_ptr<device::ImportedMemory>> CudaMemoryImporter::OpenHandle(
    absl::string_view handle) {
  CUipcMemHandle opaque = {};
  if (handle.size() != sizeof(opaque)) {
    return absl::InvalidArgumentError(
        absl::StrCat("an IPC handle has ", sizeof(opaque), " bytes, not ", handle.size()));
  }
  std::memcpy(&opaque, handle.data(), handle.size());
  const ContextGuard guard(context_);
  const Driver& driver = context_.driver();
  CUdeviceptr address = 0;
  const CUresult result =
      driver.cuIpcOpenMemHandle(&address, opaque, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  if (result == CUDA_ERROR_INVALID_CONTEXT) {
    return absl::FailedPreconditionError(kSameNumber);
  }
  const absl::Status status = driver.Check(result, "open", "the IPC handle of a trainer");
  if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_INVALID_HANDLE) {
    return absl::InvalidArgumentError(status.message());
  }
  MOMENT_RETURN_IF_ERROR(status);
  auto opened = std::make_unique<OpenedHandle>(context_, address);
  MOMENT_RETURN_IF_ERROR(opened->FindLength());
  return opened;
}

absl::StatusOr<std::unique_ptr<device::ImportedMemory>> CudaMemoryImporter::MapDescriptors(
    const std::vector<base::UniqueFd>& chunks, uint64_t chunk_bytes) {
  if (chunks.empty() || chunk_bytes == 0) {
    return absl::InvalidArgumentError("GPU memory by descriptors without any");
  }
  const ContextGuard guard(context_);
  auto mapped = std::make_unique<MappedChunks>(context_, chunk_bytes);
  MOMENT_RETURN_IF_ERROR(mapped->Map(chunks));
  return mapped;
}

}  // namespace moment::cuda
