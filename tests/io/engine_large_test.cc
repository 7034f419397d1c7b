// Single transfers beyond 2^31 bytes, without that much memory or disk.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "daemon/base/fd.h"
#include "tests/io/engine_subject.h"
#include "tests/io/io_test_support.h"
#include "tests/support/catch.h"
#include "tests/support/sanitizers.h"

namespace moment::io {
namespace {

constexpr uint64_t kBlock = 4096;
constexpr uint64_t kWindow = uint64_t{2} << 20;
constexpr uint64_t kReadLength = (uint64_t{1} << 31) + 3 * kWindow + kBlock;
// What is left of it in 32 bits is nothing.
constexpr uint64_t kWriteLength = uint64_t{1} << 32;

// Gigabytes of addresses, even if the memory behind them is one window.
bool TooLargeHere() {
  if (test::kThreadSanitizer) {
    WARN("left out: the thread sanitizer's shadow of this transfer takes 8 GiB and more");
  }
  return test::kThreadSanitizer;
}

// So many bytes of addresses. The first and last window have memory of their own, all between share
// one.
class LargeMemory {
 public:
  explicit LargeMemory(uint64_t length_bytes)
      : length_bytes_(length_bytes), shared_(::memfd_create("large", MFD_CLOEXEC)) {
    REQUIRE(::ftruncate(shared_.get(), kWindow) == 0);
    void* address = ::mmap(nullptr, length_bytes_, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(address != MAP_FAILED);
    data_ = static_cast<std::byte*>(address);
    for (uint64_t at = kWindow; at + 2 * kWindow <= length_bytes_; at += kWindow) {
      REQUIRE(::mmap(data_ + at, kWindow, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                     shared_.get(), 0) != MAP_FAILED);
    }
  }
  ~LargeMemory() { ::munmap(data_, length_bytes_); }
  LargeMemory(const LargeMemory&) = delete;
  LargeMemory& operator=(const LargeMemory&) = delete;

  std::byte* data() const { return data_; }

 private:
  const uint64_t length_bytes_;
  base::UniqueFd shared_;
  std::byte* data_ = nullptr;
};

// Takes any write and stores nothing.
class Sink : public File {
 public:
  Sink() : File("/dev/null", false), fd_(::open("/dev/null", O_WRONLY | O_CLOEXEC)) {}
  int fd() const override { return fd_.get(); }
  absl::StatusOr<uint64_t> Size() const override { return 0; }
  absl::Status Allocate(uint64_t) override { return absl::OkStatus(); }

 private:
  base::UniqueFd fd_;
};

TEST_CASE("Engine: a read of more than 2^31 bytes is one transfer with the right bytes", "[io]") {
  if (TooLargeHere()) {
    return;
  }
  const std::string kind = GENERATE(from_range(RealKinds()));
  CAPTURE(kind);
  Subject subject(kind);
  const LargeMemory memory(kReadLength);
  const base::AlignedBuffer first = RandomBuffer(kBlock, 1);
  const base::AlignedBuffer last = RandomBuffer(kBlock, 2);
  // A sparse file: two blocks on disk.
  const auto plain = MustOpen(subject.files(), subject.Path("f"), OpenMode::kCreate);
  REQUIRE(Write(subject.engine(), *plain, 0, first.data(), kBlock).ok());
  REQUIRE(Write(subject.engine(), *plain, kReadLength - kBlock, last.data(), kBlock).ok());
  auto file = subject.files().Open(subject.Path("f"), {.direct = true});
  if (!file.ok()) {
    file = subject.files().Open(subject.Path("f"), {});
  }
  REQUIRE(file.ok());
  std::memset(memory.data() + kReadLength - 2 * kBlock, 0xEE, 2 * kBlock);
  REQUIRE(Read(subject.engine(), **file, 0, memory.data(), kReadLength) == absl::OkStatus());
  CHECK(SameBytes(memory.data(), first.data(), kBlock));
  CHECK(SameBytes(memory.data() + kReadLength - kBlock, last.data(), kBlock));
  CHECK(SameBytes(memory.data() + kReadLength - 2 * kBlock, ZeroBuffer(kBlock).data(), kBlock));
}

TEST_CASE("Engine: a write of more than 2^31 bytes is one transfer", "[io]") {
  if (TooLargeHere()) {
    return;
  }
  const std::string kind = GENERATE(from_range(RealKinds()));
  CAPTURE(kind);
  SubjectOptions options;
  uint64_t moved = 0;  // one transfer at a time
  options.hooks.result = [&](const Transfer&, int64_t result) {
    moved += static_cast<uint64_t>(result);
    return result;
  };
  Subject subject(kind, options);
  const LargeMemory memory(kWriteLength);
  Sink sink;
  CHECK(Write(subject.engine(), sink, 0, memory.data(), kWriteLength) == absl::OkStatus());
  CHECK(moved == kWriteLength);
}

TEST_CASE("Engine: offsets beyond 2^32 are kept", "[io]") {
  const std::string kind = GENERATE(from_range(AllKinds()));
  CAPTURE(kind);
  Subject subject(kind);
  const base::AlignedBuffer written = RandomBuffer(kBlock, 3);
  const auto file = MustOpen(subject.files(), subject.Path("f"), OpenMode::kCreate, true);
  const uint64_t offset = (uint64_t{1} << 32) + kBlock;
  REQUIRE(Write(subject.engine(), *file, offset, written.data(), kBlock).ok());
  CHECK(*file->Size() == offset + kBlock);
  base::AlignedBuffer read = ZeroBuffer(kBlock);
  REQUIRE(Read(subject.engine(), *file, kBlock, read.data(), kBlock).ok());
  CHECK(SameBytes(read.data(), ZeroBuffer(kBlock).data(), kBlock));
  REQUIRE(Read(subject.engine(), *file, offset, read.data(), kBlock).ok());
  CHECK(SameBytes(read.data(), written.data(), kBlock));
}

}  // namespace
}  // namespace moment::io
