#include "cuda/memory_importer.h"

#include <set>
#include <string>

#include "tests/support/catch.h"

namespace moment::cuda {
namespace {

// What the importer asks of the driver, counted.
struct Counts {
  CUresult open_result = CUDA_SUCCESS;
  int opened = 0;
  std::set<CUdeviceptr> mapped;
  int handles = 0;  // imported and not released
  int imports = 0;
  int reserved = 0;
};
Counts counts;

constexpr CUdeviceptr kBase = 0x10000;
constexpr size_t kSize = 0x8000;
constexpr uint64_t kOffset = 0x100;  // of what the driver opens, within its allocation
constexpr int kImportsThatWork = 2;

Driver FakeDriver() {
  Driver driver;
  driver.cuGetErrorName = [](CUresult, const char** name) {
    *name = "AN_ERROR";
    return CUDA_SUCCESS;
  };
  driver.cuGetErrorString = driver.cuGetErrorName;
  driver.cuDevicePrimaryCtxRetain = [](CUcontext*, CUdevice) { return CUDA_SUCCESS; };
  driver.cuDevicePrimaryCtxRelease = [](CUdevice) { return CUDA_SUCCESS; };
  driver.cuCtxPushCurrent = [](CUcontext) { return CUDA_SUCCESS; };
  driver.cuCtxPopCurrent = [](CUcontext*) { return CUDA_SUCCESS; };
  driver.cuIpcOpenMemHandle = [](CUdeviceptr* address, CUipcMemHandle, unsigned) {
    counts.opened += counts.open_result == CUDA_SUCCESS ? 1 : 0;
    *address = kBase + kOffset;
    return counts.open_result;
  };
  driver.cuIpcCloseMemHandle = [](CUdeviceptr address) {
    counts.opened -= address == kBase + kOffset ? 1 : 0;
    return CUDA_SUCCESS;
  };
  driver.cuMemGetAddressRange = [](CUdeviceptr* base, size_t* size, CUdeviceptr) {
    *base = kBase;
    *size = kSize;
    return CUDA_SUCCESS;
  };
  driver.cuMemAddressReserve = [](CUdeviceptr* address, size_t, size_t, CUdeviceptr,
                                  unsigned long long) {
    ++counts.reserved;
    *address = kBase;
    return CUDA_SUCCESS;
  };
  driver.cuMemAddressFree = [](CUdeviceptr, size_t) {
    --counts.reserved;
    return CUDA_SUCCESS;
  };
  driver.cuMemImportFromShareableHandle = [](CUmemGenericAllocationHandle*, void*,
                                             CUmemAllocationHandleType) {
    if (counts.imports++ == kImportsThatWork) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ++counts.handles;
    return CUDA_SUCCESS;
  };
  driver.cuMemRelease = [](CUmemGenericAllocationHandle) {
    --counts.handles;
    return CUDA_SUCCESS;
  };
  driver.cuMemMap = [](CUdeviceptr address, size_t, size_t, CUmemGenericAllocationHandle,
                       unsigned long long) {
    counts.mapped.insert(address);
    return CUDA_SUCCESS;
  };
  driver.cuMemUnmap = [](CUdeviceptr address, size_t) {
    counts.mapped.erase(address);
    return CUDA_SUCCESS;
  };
  driver.cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc*, size_t) {
    return CUDA_SUCCESS;
  };
  return driver;
}

struct Fixture {
  Fixture() { counts = Counts(); }
  const Driver driver = FakeDriver();
  const Context context = *Context::Retain(driver, 0);
  CudaMemoryImporter importer{context};
  const std::string handle = std::string(64, 'h');
};

}  // namespace

TEST_CASE("Importer: an interior address has what is left of its allocation", "[cuda]") {
  Fixture fixture;
  {
    const auto memory = fixture.importer.OpenHandle(fixture.handle);
    REQUIRE(memory.ok());
    CHECK((*memory)->length_bytes() == kSize - kOffset);
    CHECK(counts.opened == 1);
  }
  CHECK(counts.opened == 0);
}

TEST_CASE("Importer: equal process numbers are an error that says what to do", "[cuda]") {
  Fixture fixture;
  counts.open_result = CUDA_ERROR_INVALID_CONTEXT;
  const absl::Status status = fixture.importer.OpenHandle(fixture.handle).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message().find("shareProcessNamespace") != absl::string_view::npos);
}

TEST_CASE("Importer: handles of nothing, and of another length, are refused", "[cuda]") {
  Fixture fixture;
  CHECK(absl::IsInvalidArgument(fixture.importer.OpenHandle("short").status()));
  for (const CUresult result : {CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_HANDLE}) {
    counts.open_result = result;
    CHECK(absl::IsInvalidArgument(fixture.importer.OpenHandle(fixture.handle).status()));
  }
}

TEST_CASE("Importer: descriptors are mapped side by side, and all of them or none", "[cuda]") {
  Fixture fixture;
  std::vector<base::UniqueFd> chunks(kImportsThatWork);
  {
    const auto memory = fixture.importer.MapDescriptors(chunks, 0x1000);
    REQUIRE(memory.ok());
    CHECK((*memory)->length_bytes() == 0x2000);
    CHECK(counts.mapped == std::set<CUdeviceptr>{kBase, kBase + 0x1000});
    CHECK(counts.handles == 0);
  }
  CHECK(counts.mapped.empty());
  CHECK(counts.reserved == 0);
  counts = Counts();
  chunks.emplace_back();
  CHECK(absl::IsInvalidArgument(fixture.importer.MapDescriptors(chunks, 0x1000).status()));
  CHECK(counts.mapped.empty());
  CHECK(counts.reserved == 0);
  CHECK(absl::IsInvalidArgument(fixture.importer.MapDescriptors({}, 0x1000).status()));
}

}  // namespace moment::cuda
