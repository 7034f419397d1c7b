#include "client/src/gpu_regions.h"

#include <dlfcn.h>

#include "client/src/gpu_copier.h"
#include "tests/client/fake_libcuda.h"
#include "tests/support/catch.h"

namespace moment::client {
namespace {

constexpr uint64_t kMiB = 1 << 20;
using Holder = GpuRegions::Holder;

// The fake driver, loaded as a trainer's CUDA runtime loads the real one.
class FakeDriver {
 public:
  FakeDriver() : library_(::dlopen(MOMENT_FAKE_LIBCUDA, RTLD_NOW | RTLD_GLOBAL)) {
    REQUIRE(library_ != nullptr);
    Resolve("fake_cuda_allocate", allocate);
    Resolve("fake_cuda_free", free);
    Resolve("fake_cuda_replace", replace);
    Resolve("fake_cuda_replace_piece", replace_piece);
    Resolve("fake_cuda_counts", counts_);
    before_ = Read();
  }

  // Since this was made.
  FakeCudaCounts counts() const {
    FakeCudaCounts now = Read();
    now.handles -= before_.handles;
    now.refusals -= before_.refusals;
    now.exports -= before_.exports;
    now.copies -= before_.copies;
    now.not_current -= before_.not_current;
    return now;
  }

  Buffer Allocate(int kind, uint64_t length_bytes, int gpu = 0) const {
    return {static_cast<std::byte*>(allocate(kind, length_bytes, gpu)), length_bytes, gpu};
  }

  decltype(&fake_cuda_allocate) allocate = nullptr;
  decltype(&fake_cuda_free) free = nullptr;
  decltype(&fake_cuda_replace) replace = nullptr;
  decltype(&fake_cuda_replace_piece) replace_piece = nullptr;

 private:
  template <typename Function>
  void Resolve(const char* name, Function& function) {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    REQUIRE(function != nullptr);
  }
  FakeCudaCounts Read() const {
    FakeCudaCounts now = {};
    counts_(&now);
    return now;
  }

  void* library_;
  decltype(&fake_cuda_counts) counts_ = nullptr;
  FakeCudaCounts before_ = {};
};

Buffer Part(const Buffer& whole, uint64_t offset, uint64_t length) {
  return {whole.data + offset, length, whole.gpu};
}

struct Regions {
  uint32_t offered = 0;
  GpuRegions regions{FAKE_CUDA_UUID, [this](const std::vector<UniqueFd>& chunks) {
                       const uint32_t first = offered;
                       offered += static_cast<uint32_t>(chunks.size());
                       return absl::StatusOr<uint32_t>(first);
                     }};

  SharedBuffers Describe(const std::vector<Buffer>& buffers, Holder holder = Holder::kAttachment) {
    auto shared = regions.Describe(holder, buffers, 1);
    REQUIRE(shared.status() == absl::OkStatus());
    return *std::move(shared);
  }
};

}  // namespace

TEST_CASE("GpuRegions: tensors of one allocation share its handle, with offsets", "[client]") {
  const FakeDriver driver;
  Regions daemon;
  const Buffer whole = driver.Allocate(FAKE_CUDA_LEGACY, kMiB);
  const SharedBuffers shared =
      daemon.Describe({Part(whole, 4, 100), {}, Part(whole, 1001, 7), Part(whole, kMiB - 3, 3)});
  REQUIRE(shared.regions.size() == 1);
  CHECK(shared.regions[0].length_bytes() == kMiB);
  CHECK(shared.regions[0].cuda_ipc().device_uuid() == FAKE_CUDA_UUID);
  CHECK(shared.regions[0].cuda_ipc().handle().size() == 64);
  REQUIRE(shared.locations.size() == 3);
  CHECK(shared.locations[0].offset_bytes() == 4);
  CHECK(shared.locations[1].tensor() == 2);
  CHECK(shared.locations[1].offset_bytes() == 1001);
  CHECK(shared.locations[2].offset_bytes() == kMiB - 3);
  CHECK(driver.counts().handles == 1);
  driver.free(whole.data);
}

TEST_CASE("GpuRegions: what cannot be exported is never asked for a handle", "[client]") {
  const FakeDriver driver;
  Regions daemon;
  std::byte host[16];
  std::vector<Buffer> buffers = {driver.Allocate(FAKE_CUDA_UNEXPORTABLE, kMiB),
                                 driver.Allocate(FAKE_CUDA_MANAGED, kMiB),
                                 {host, sizeof host}};
  FindGpus(buffers);
  CHECK(buffers[0].gpu == 0);
  CHECK(buffers[1].gpu == 0);
  CHECK(buffers[2].gpu == -1);
  const SharedBuffers shared = daemon.Describe(buffers);
  CHECK(shared.regions.empty());
  CHECK(shared.locations.empty());
  CHECK(driver.counts().refusals == 0);
  driver.free(buffers[0].data);
  driver.free(buffers[1].data);
}

TEST_CASE("GpuRegions: other memory at the same address changes the identity", "[client]") {
  const FakeDriver driver;
  Regions daemon;
  const Buffer buffer = driver.Allocate(FAKE_CUDA_LEGACY, kMiB);
  const SharedBuffers before = daemon.Describe({buffer});
  CHECK(daemon.Describe({buffer}).Identity() == before.Identity());
  driver.replace(buffer.data);
  const SharedBuffers after = daemon.Describe({buffer});
  CHECK(after.Identity() != before.Identity());
  CHECK(after.regions[0].buffer_id() != before.regions[0].buffer_id());
  driver.free(buffer.data);
}

TEST_CASE("GpuRegions: a buffer beyond its allocation, or on another GPU, is refused", "[client]") {
  const FakeDriver driver;
  Regions daemon;
  const Buffer whole = driver.Allocate(FAKE_CUDA_LEGACY, kMiB);
  const Buffer other = driver.Allocate(FAKE_CUDA_LEGACY, kMiB, 1);
  const auto beyond =
      daemon.regions.Describe(Holder::kAttachment, {Part(whole, 8, kMiB)}, 1).status();
  CHECK(absl::IsInvalidArgument(beyond));
  CHECK(beyond.message().find("tensor 0") != absl::string_view::npos);
  const auto foreign = daemon.regions.Describe(Holder::kAttachment, {whole, other}, 1).status();
  CHECK(absl::IsInvalidArgument(foreign));
  CHECK(foreign.message().find("tensor 1 lies on GPU-") != absl::string_view::npos);
  driver.free(whole.data);
  driver.free(other.data);
}

TEST_CASE("GpuRegions: nothing is shared with a store on the host, or by request", "[client]") {
  const FakeDriver driver;
  const Buffer buffer = driver.Allocate(FAKE_CUDA_LEGACY, kMiB);
  const auto never = [](const std::vector<UniqueFd>&) -> absl::StatusOr<uint32_t> {
    return absl::InternalError("nothing is to be offered");
  };
  GpuRegions on_host("host", never);
  CHECK(on_host.Describe(Holder::kAttachment, {buffer}, 1)->regions.empty());
  ::setenv("MOMENTD_GPU_TRANSPORT", "ring", 1);
  GpuRegions by_ring(FAKE_CUDA_UUID, never);
  CHECK(by_ring.Describe(Holder::kAttachment, {buffer}, 1)->regions.empty());
  ::unsetenv("MOMENTD_GPU_TRANSPORT");
  driver.free(buffer.data);
}

TEST_CASE("GpuRegions: pieces of a segment are offered once, and anew when one changes",
          "[client]") {
  const FakeDriver driver;
  const Buffer segment = driver.Allocate(FAKE_CUDA_VMM, 8 * FAKE_CUDA_PIECE_BYTES);
  {
    Regions daemon;
    const Buffer across = Part(segment, FAKE_CUDA_PIECE_BYTES - 4, 2 * FAKE_CUDA_PIECE_BYTES);
    const SharedBuffers first = daemon.Describe({across});
    REQUIRE(first.regions.size() == 1);
    CHECK(first.regions[0].cuda_vmm().descriptors_size() == 3);
    CHECK(first.regions[0].cuda_vmm().chunk_bytes() == FAKE_CUDA_PIECE_BYTES);
    CHECK(first.locations[0].offset_bytes() == FAKE_CUDA_PIECE_BYTES - 4);
    CHECK(daemon.Describe({across}).Identity() == first.Identity());
    // A part of what the daemon has, for the step: nothing new is offered.
    const SharedBuffers part =
        daemon.Describe({Part(segment, 2 * FAKE_CUDA_PIECE_BYTES, 8)}, Holder::kStep);
    CHECK(part.regions[0].cuda_vmm().descriptors(0) == first.regions[0].cuda_vmm().descriptors(0));
    CHECK(part.locations[0].offset_bytes() == 2 * FAKE_CUDA_PIECE_BYTES);
    CHECK(driver.counts().exports == 3);
    driver.replace_piece(segment.data + FAKE_CUDA_PIECE_BYTES);
    const SharedBuffers moved = daemon.Describe({across});
    CHECK(moved.Identity() != first.Identity());
    CHECK(driver.counts().exports == 6);
    // Between two runs of pieces lies a gap: two regions.
    const SharedBuffers two =
        daemon.Describe({across, Part(segment, 7 * FAKE_CUDA_PIECE_BYTES, 4)});
    CHECK(two.regions.size() == 2);
  }
  CHECK(driver.counts().retained == 0);
  driver.free(segment.data);
}

TEST_CASE("GpuRegions: what the daemon has closed is offered anew", "[client]") {
  const FakeDriver driver;
  const Buffer segment = driver.Allocate(FAKE_CUDA_VMM, FAKE_CUDA_PIECE_BYTES);
  {
    Regions daemon;
    const SharedBuffers first = daemon.Describe({segment}, Holder::kStep);
    daemon.regions.Release(Holder::kStep);
    const SharedBuffers again = daemon.Describe({segment}, Holder::kStep);
    CHECK(again.Identity() != first.Identity());
  }
  driver.free(segment.data);
}

TEST_CASE("GpuCopier: bytes go to and from a GPU with its context current", "[client]") {
  const FakeDriver driver;
  const Buffer gpu = driver.Allocate(FAKE_CUDA_UNEXPORTABLE, kMiB);
  std::vector<std::byte> slot(64, std::byte{7});
  {
    GpuCopier copier;
    copier.SetPinned(slot.data(), slot.size());
    REQUIRE(copier.Start(0, 3, gpu.data, slot.data(), slot.size()));
    REQUIRE(copier.Finish(3));
    std::fill(slot.begin(), slot.end(), std::byte{0});
    REQUIRE(copier.Start(0, 3, slot.data(), gpu.data, slot.size()));
    REQUIRE(copier.Finish(3));
    CHECK(driver.counts().pinned == 1);
  }
  CHECK(slot == std::vector<std::byte>(64, std::byte{7}));
  CHECK(driver.counts().pinned == 0);
  CHECK(driver.counts().not_current == 0);
  CHECK(driver.counts().copies == 128);
  driver.free(gpu.data);
}

}  // namespace moment::client
