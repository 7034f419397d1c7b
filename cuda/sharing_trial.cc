#include "cuda/sharing_trial.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cuda/driver.h"
#include "cuda/gpu_list.h"
#include "cuda/memory_importer.h"
#include "cuda/owners.h"
#include "daemon/base/errors.h"

namespace moment::cuda {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{2} << 20;  // the granularity of VMM allocations
constexpr std::byte kMade{0x5A};
constexpr std::byte kAnswered{0xC3};

// Copies go by the null stream, which the call waits for.
absl::Status Fill(const Context& context, CUdeviceptr memory, std::byte value) {
  const ContextGuard guard(context);
  const Driver& driver = context.driver();
  const std::vector<std::byte> bytes(kPieceBytes, value);
  MOMENT_RETURN_IF_ERROR(driver.Check(
      driver.cuMemcpyHtoDAsync(memory, bytes.data(), kPieceBytes, nullptr), "write", "the piece"));
  return driver.Check(driver.cuStreamSynchronize(nullptr), "write", "the piece");
}

absl::Status Compare(const Context& context, CUdeviceptr memory, std::byte value) {
  const ContextGuard guard(context);
  const Driver& driver = context.driver();
  std::vector<std::byte> bytes(kPieceBytes);
  MOMENT_RETURN_IF_ERROR(driver.Check(
      driver.cuMemcpyDtoHAsync(bytes.data(), memory, kPieceBytes, nullptr), "read", "the piece"));
  MOMENT_RETURN_IF_ERROR(driver.Check(driver.cuStreamSynchronize(nullptr), "read", "the piece"));
  const auto count = std::count(bytes.begin(), bytes.end(), value);
  if (static_cast<uint64_t>(count) != kPieceBytes) {
    return absl::DataLossError(absl::StrCat("of ", kPieceBytes, " bytes of GPU memory only ", count,
                                            " hold what the other process wrote"));
  }
  return absl::OkStatus();
}

CUdeviceptr AddressOf(const device::ImportedMemory& memory) {
  return reinterpret_cast<CUdeviceptr>(memory.data());
}

class Piece : public SharedPiece {
 public:
  explicit Piece(Context context) : context_(std::move(context)) {}

  absl::Status Make(Sharing sharing) {
    MOMENT_RETURN_IF_ERROR(sharing == Sharing::kHandle ? MakeHandle() : MakeDescriptor());
    return Fill(context_, address_, kMade);
  }

  const std::string& handle() const override { return handle_; }
  int fd() const override { return fd_.get(); }
  absl::Status CheckAnswer() override { return Compare(context_, address_, kAnswered); }

 private:
  absl::Status MakeHandle() {
    MOMENT_ASSIGN_OR_RETURN(memory_, AllocateDeviceMemory(context_, kPieceBytes));
    address_ = memory_.get();
    const ContextGuard guard(context_);
    CUipcMemHandle handle = {};
    MOMENT_RETURN_IF_ERROR(
        context_.driver().Check(context_.driver().cuIpcGetMemHandle(&handle, address_),
                                "make an IPC handle of", "a piece of GPU memory"));
    handle_.assign(handle.reserved, sizeof(handle.reserved));
    return absl::OkStatus();
  }

  absl::Status MakeDescriptor() {
    MOMENT_RETURN_IF_ERROR(Export());
    base::UniqueFd copy(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy.valid()) {
      return base::ErrnoStatus(errno, "duplicate", "the descriptor of a piece of GPU memory");
    }
    std::vector<base::UniqueFd> chunks;
    chunks.push_back(std::move(copy));
    MOMENT_ASSIGN_OR_RETURN(mapped_, importer_.MapDescriptors(chunks, kPieceBytes));
    address_ = AddressOf(*mapped_);
    return absl::OkStatus();
  }

  absl::Status Export() {
    const ContextGuard guard(context_);
    const Driver& driver = context_.driver();
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, context_.gpu()};
    CUmemGenericAllocationHandle allocation = 0;
    MOMENT_RETURN_IF_ERROR(
        driver.Check(driver.cuMemCreate(&allocation, kPieceBytes, &properties, 0), "allocate",
                     "a piece of GPU memory that descriptors can share"));
    int fd = -1;
    const CUresult exported = driver.cuMemExportToShareableHandle(
        &fd, allocation, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    driver.cuMemRelease(allocation);  // the descriptor holds the memory
    MOMENT_RETURN_IF_ERROR(driver.Check(exported, "make a descriptor of", "a piece of GPU memory"));
    fd_.Reset(fd);
    return absl::OkStatus();
  }

  const Context context_;
  CudaMemoryImporter importer_{context_};
  DeviceMemory memory_;
  base::UniqueFd fd_;
  std::unique_ptr<device::ImportedMemory> mapped_;
  CUdeviceptr address_ = 0;
  std::string handle_;
};

absl::StatusOr<Context> MakeContext(const std::string& uuid) {
  MOMENT_ASSIGN_OR_RETURN(const Driver* driver, Driver::Load());
  MOMENT_ASSIGN_OR_RETURN(const NumberedGpu gpu, FindGpu(*driver, uuid));
  return Context::Retain(*driver, gpu.device);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedPiece>> MakeSharedPiece(const std::string& uuid,
                                                             Sharing sharing) {
  MOMENT_ASSIGN_OR_RETURN(Context context, MakeContext(uuid));
  auto piece = std::make_unique<Piece>(std::move(context));
  MOMENT_RETURN_IF_ERROR(piece->Make(sharing));
  return piece;
}

absl::Status AnswerSharedPiece(const std::string& uuid, const std::string& handle,
                               base::UniqueFd descriptor) {
  MOMENT_ASSIGN_OR_RETURN(const Context context, MakeContext(uuid));
  CudaMemoryImporter importer(context);
  absl::StatusOr<std::unique_ptr<device::ImportedMemory>> opened;
  if (descriptor.valid()) {
    std::vector<base::UniqueFd> chunks;
    chunks.push_back(std::move(descriptor));
    opened = importer.MapDescriptors(chunks, kPieceBytes);
  } else {
    opened = importer.OpenHandle(handle);
  }
  MOMENT_RETURN_IF_ERROR(opened.status());
  if ((*opened)->length_bytes() < kPieceBytes) {
    return absl::DataLossError("the piece is shorter in this process");
  }
  MOMENT_RETURN_IF_ERROR(Compare(context, AddressOf(**opened), kMade));
  return Fill(context, AddressOf(**opened), kAnswered);
}

}  // namespace moment::cuda
