// The conformance suite's other half: what the system may answer, put before each engine.

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "daemon/base/failpoint.h"
#include "tests/io/engine_subject.h"
#include "tests/io/io_test_support.h"
#include "tests/support/catch.h"

namespace moment::io {
namespace {

constexpr uint64_t kBlock = 4096;

std::string AnyKind() { return GENERATE(from_range(AllKinds())); }
std::string RealKind() { return GENERATE(from_range(RealKinds())); }

// Writes and reads 40 blocks in transfers of 5; the bytes must be right.
void CheckBytes(Subject& subject, bool direct) {
  constexpr uint64_t kLength = 40 * kBlock;
  const base::AlignedBuffer before = RandomBuffer(kLength, 1);
  const base::AlignedBuffer written = RandomBuffer(kLength, 2);
  const auto file = subject.FileWith("f", before.data(), kLength, direct);
  base::AlignedBuffer read = ZeroBuffer(kLength);
  Batch writes(subject.engine());
  Batch reads(subject.engine());
  for (uint64_t at = 0; at < kLength; at += 5 * kBlock) {
    writes.Add({IoOp::kWrite, file.get(), at, written.data() + at, 5 * kBlock});
    reads.Add({IoOp::kRead, file.get(), at, read.data() + at, 5 * kBlock});
  }
  writes.Run();
  REQUIRE(writes.first_error() == absl::OkStatus());
  reads.Run();
  REQUIRE(reads.first_error() == absl::OkStatus());
  CHECK(SameBytes(read.data(), written.data(), kLength));
}

// Believes only `kept` of the bytes moved, and spoils the others where they arrived.
int64_t CutShort(const Transfer& transfer, int64_t result, int64_t kept) {
  if (result > kept && kept > 0) {
    if (transfer.op == IoOp::kRead) {
      std::memset(transfer.data + transfer.progress + kept, 0xEE,
                  static_cast<size_t>(result - kept));
    }
    return kept;
  }
  return result;
}

TEST_CASE("Engine: short transfers are continued until the bytes are complete", "[io]") {
  const std::string kind = AnyKind();
  const bool direct = GENERATE(true, false);
  CAPTURE(kind, direct);
  SubjectOptions options{.faults = {.seed = 3, .short_transfers = true}};
  options.hooks.result = [](const Transfer& transfer, int64_t result) {
    return CutShort(transfer, result, result / 2);
  };
  // Halving ends at one block of a direct file, and at one byte of a buffered one.
  if (direct) {
    options.hooks.result = [](const Transfer& transfer, int64_t result) {
      const int64_t half = result / 2 / static_cast<int64_t>(kBlock) * static_cast<int64_t>(kBlock);
      return CutShort(transfer, result, half);
    };
  }
  Subject subject(kind, options);
  CheckBytes(subject, direct);
}

TEST_CASE("Engine: the odd end of a short direct transfer is moved again, aligned", "[io]") {
  const std::string kind = RealKind();
  CAPTURE(kind);
  constexpr int64_t kOdd = 512;  // what a disk with small sectors may do
  std::mutex mutex;
  std::map<const Transfer*, int> last_blocks;
  bool aligned = true;
  SubjectOptions options;
  options.hooks.result = [&](const Transfer& transfer, int64_t result) {
    const std::lock_guard lock(mutex);
    aligned = aligned && transfer.progress % kBlock == 0;
    if (result > static_cast<int64_t>(kBlock)) {
      return CutShort(transfer, result, result - static_cast<int64_t>(kBlock) + kOdd);
    }
    // The last block comes whole at the second attempt.
    return ++last_blocks[&transfer] == 1 ? CutShort(transfer, result, kOdd) : result;
  };
  Subject subject(kind, options);
  CheckBytes(subject, true);
  CHECK(aligned);
  CHECK(!last_blocks.empty());
}

TEST_CASE("Engine: a transfer larger than one move is made of several", "[io]") {
  const std::string kind = RealKind();
  const bool direct = GENERATE(true, false);
  CAPTURE(kind, direct);
  SubjectOptions options;
  options.hooks.max_piece_bytes = 2 * kBlock;
  std::mutex mutex;
  int64_t largest = 0;
  options.hooks.result = [&](const Transfer&, int64_t result) {
    const std::lock_guard lock(mutex);
    largest = std::max(largest, result);
    return result;
  };
  Subject subject(kind, options);
  CheckBytes(subject, direct);
  CHECK(largest == 2 * kBlock);
}

TEST_CASE("Engine: EINTR and EAGAIN are tried again", "[io]") {
  const std::string kind = RealKind();
  const int error = GENERATE(EINTR, EAGAIN);
  CAPTURE(kind, error);
  std::mutex mutex;
  std::map<const Transfer*, int> seen;
  SubjectOptions options;
  options.hooks.result = [&](const Transfer& transfer, int64_t result) -> int64_t {
    const std::lock_guard lock(mutex);
    return ++seen[&transfer] <= 3 ? -error : result;
  };
  Subject subject(kind, options);
  CheckBytes(subject, true);
  const auto file = MustOpen(subject.files(), subject.Path("f"), OpenMode::kReadWrite);
  CHECK(Sync(subject.engine(), *file).ok());
}

TEST_CASE("Engine: a transfer that never gets on ends with the error", "[io]") {
  const std::string kind = RealKind();
  CAPTURE(kind);
  SubjectOptions options;
  options.hooks.result = [](const Transfer& transfer, int64_t) -> int64_t {
    return transfer.offset == 0 ? -EAGAIN : 100;  // or never a whole block
  };
  Subject subject(kind, options);
  const base::AlignedBuffer bytes = RandomBuffer(4 * kBlock, 4);
  const auto file = subject.FileWith("f", bytes.data(), 4 * kBlock, true);
  CHECK(absl::IsInternal(Read(subject.engine(), *file, 0, bytes.data(), kBlock)));
  CHECK(absl::IsInternal(Read(subject.engine(), *file, kBlock, bytes.data(), kBlock)));
}

// An engine whose every transfer of `op` meets `error`, after its first block where there are more.
SubjectOptions FailingWith(IoOp op, int error) {
  SubjectOptions options;
  options.hooks.max_piece_bytes = kBlock;
  options.hooks.result = [op, error](const Transfer& transfer, int64_t result) -> int64_t {
    const bool meets = transfer.op == op && (op == IoOp::kSync || transfer.progress > 0);
    return meets ? -error : result;
  };
  return options;
}

TEST_CASE("Engine: EIO of a read or write names the file and the offset that failed", "[io]") {
  const std::string kind = RealKind();
  const bool write = GENERATE(true, false);
  CAPTURE(kind, write);
  const IoOp op = write ? IoOp::kWrite : IoOp::kRead;
  Subject subject(kind, FailingWith(op, EIO));
  const base::AlignedBuffer bytes = RandomBuffer(4 * kBlock, 5);
  const auto file = subject.FileWith("f", bytes.data(), 4 * kBlock, true);
  Batch batch(subject.engine());
  batch.Add({op, file.get(), kBlock, bytes.data(), 2 * kBlock});
  batch.Run();
  const absl::Status status = batch.status(0);
  CHECK(absl::IsInternal(status));
  CHECK(status.message() == absl::StrCat(write ? "write " : "read ", subject.Path("f"),
                                         " at offset ", 2 * kBlock, ": Input/output error"));
}

TEST_CASE("Engine: EIO of the simulated disk reads as that of a real one", "[io]") {
  Subject subject("simulated", {.faults = {.read_error = 1, .write_error = 1, .sync_error = 1}});
  const base::AlignedBuffer bytes = RandomBuffer(4 * kBlock, 5);
  const auto file = subject.FileWith("f", bytes.data(), 4 * kBlock, true);
  CHECK(Read(subject.engine(), *file, kBlock, bytes.data(), kBlock).message() ==
        "read /f at offset 4096: Input/output error");
  CHECK(Write(subject.engine(), *file, 0, bytes.data(), kBlock).message() ==
        "write /f at offset 0: Input/output error");
  CHECK(Sync(subject.engine(), *file).message() == "sync /f: Input/output error");
}

TEST_CASE("Engine: a failed sync is reported and not tried again", "[io]") {
  const std::string kind = RealKind();
  CAPTURE(kind);
  int syncs = 0;  // one transfer at a time
  SubjectOptions options;
  options.hooks.result = [&](const Transfer& transfer, int64_t result) -> int64_t {
    return transfer.op == IoOp::kSync && ++syncs > 0 ? -EIO : result;
  };
  Subject subject(kind, options);
  const auto file = MustOpen(subject.files(), subject.Path("f"), OpenMode::kCreate);
  const absl::Status status = Sync(subject.engine(), *file);
  CHECK(absl::IsInternal(status));
  CHECK(status.message() == absl::StrCat("sync ", subject.Path("f"), ": Input/output error"));
  CHECK(syncs == 1);
}

TEST_CASE("Engine: its failpoints stand before each kind of transfer", "[io]") {
  const std::string kind = RealKind();
  CAPTURE(kind);
  Subject subject(kind);
  const base::AlignedBuffer bytes = RandomBuffer(kBlock, 5);
  const auto file = subject.FileWith("f", bytes.data(), kBlock, true);
  REQUIRE(base::ArmFailpoints("io.read=error@2,io.write=error@1,io.sync=error@1").ok());
  const absl::Status written = Write(subject.engine(), *file, 0, bytes.data(), kBlock);
  const absl::Status synced = Sync(subject.engine(), *file);
  const absl::Status first = Read(subject.engine(), *file, 0, bytes.data(), kBlock);
  const absl::Status second = Read(subject.engine(), *file, 0, bytes.data(), kBlock);
  REQUIRE(base::ArmFailpoints("").ok());
  CHECK(written.message() ==
        absl::StrCat("write ", subject.Path("f"), " at offset 0: failpoint io.write"));
  CHECK(synced.message() == absl::StrCat("sync ", subject.Path("f"), ": failpoint io.sync"));
  CHECK(first.ok());
  CHECK(absl::IsInternal(second));
}

TEST_CASE("Engine: a full disk is RESOURCE_EXHAUSTED", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  SubjectOptions options = FailingWith(IoOp::kWrite, ENOSPC);
  options.faults.capacity_bytes = 2 * kBlock;
  Subject subject(kind, options);
  const base::AlignedBuffer bytes = RandomBuffer(4 * kBlock, 6);
  const auto file = MustOpen(subject.files(), subject.Path("f"), OpenMode::kCreate);
  const absl::Status status = Write(subject.engine(), *file, 0, bytes.data(), 4 * kBlock);
  CHECK(absl::IsResourceExhausted(status));
  CHECK(absl::StrContains(status.message(), subject.Path("f")));
}

TEST_CASE("Engine: a transfer that the kernel cancels is CANCELLED", "[io]") {
  const std::string kind = RealKind();
  CAPTURE(kind);
  Subject subject(kind, FailingWith(IoOp::kRead, ECANCELED));
  const base::AlignedBuffer bytes = RandomBuffer(4 * kBlock, 7);
  const auto file = subject.FileWith("f", bytes.data(), 4 * kBlock, true);
  CHECK(absl::IsCancelled(Read(subject.engine(), *file, 0, bytes.data(), 2 * kBlock)));
}

TEST_CASE("Engine: a write that moves nothing is an error, not a loop", "[io]") {
  const std::string kind = RealKind();
  CAPTURE(kind);
  SubjectOptions options;
  options.hooks.result = [](const Transfer&, int64_t) -> int64_t { return 0; };
  Subject subject(kind, options);
  const base::AlignedBuffer bytes = RandomBuffer(kBlock, 8);
  const auto file = subject.FileWith("f", bytes.data(), kBlock, true);
  CHECK(absl::IsInternal(Write(subject.engine(), *file, 0, bytes.data(), kBlock)));
  CHECK(absl::IsDataLoss(Read(subject.engine(), *file, 0, bytes.data(), kBlock)));
}

TEST_CASE("Engine: a system that claims to have moved more than asked is not believed", "[io]") {
  const std::string kind = RealKind();
  CAPTURE(kind);
  SubjectOptions options;
  options.hooks.result = [](const Transfer&, int64_t result) { return 2 * result; };
  Subject subject(kind, options);
  const base::AlignedBuffer bytes = RandomBuffer(kBlock, 9);
  const auto file = subject.FileWith("f", bytes.data(), kBlock, true);
  CHECK(absl::IsInternal(Read(subject.engine(), *file, 0, bytes.data(), kBlock)));
}

}  // namespace
}  // namespace moment::io
