// What every engine does, whatever moves the bytes.

#include <cstring>
#include <random>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "tests/io/engine_subject.h"
#include "tests/io/io_test_support.h"
#include "tests/support/catch.h"

namespace moment::io {
namespace {

constexpr uint64_t kBlock = 4096;

std::string AnyKind() { return GENERATE(from_range(AllKinds())); }

TEST_CASE("Engine: what was written is read, direct and buffered", "[io]") {
  const std::string kind = AnyKind();
  const bool direct = GENERATE(true, false);
  CAPTURE(kind, direct);
  Subject subject(kind);
  const uint64_t length = 64 * kBlock;
  const auto file = MustOpen(subject.files(), subject.Path("f"), OpenMode::kCreate, direct);
  REQUIRE(file->Allocate(length).ok());
  const base::AlignedBuffer written = RandomBuffer(length, 1);
  Batch writes(subject.engine());
  for (uint64_t at = 0; at < length; at += 4 * kBlock) {
    writes.Add({IoOp::kWrite, file.get(), at, written.data() + at, 4 * kBlock});
  }
  writes.Run();
  REQUIRE(writes.first_error() == absl::OkStatus());
  REQUIRE(Sync(subject.engine(), *file).ok());
  base::AlignedBuffer read = ZeroBuffer(length);
  REQUIRE(Read(subject.engine(), *file, 0, read.data(), length).ok());
  CHECK(SameBytes(read.data(), written.data(), length));
}

TEST_CASE("Engine: a buffered file takes any length, offset and address", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  Subject subject(kind);
  const uint64_t length = 3098112 + 1;
  const base::AlignedBuffer written = RandomBuffer(length + 8, 2);
  const auto file = MustOpen(subject.files(), subject.Path("f"), OpenMode::kCreate);
  REQUIRE(Write(subject.engine(), *file, 7, written.data() + 3, length).ok());
  CHECK(*file->Size() == 7 + length);
  base::AlignedBuffer read = ZeroBuffer(length + 8);
  REQUIRE(Read(subject.engine(), *file, 7, read.data() + 5, length).ok());
  CHECK(SameBytes(read.data() + 5, written.data() + 3, length));
}

TEST_CASE("Engine: a misaligned transfer of a direct file is INVALID_ARGUMENT", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  Subject subject(kind);
  const base::AlignedBuffer bytes = RandomBuffer(4 * kBlock, 3);
  const auto file = subject.FileWith("f", bytes.data(), 4 * kBlock, true);
  std::byte* data = bytes.data();
  CHECK(absl::IsInvalidArgument(Read(subject.engine(), *file, 512, data, kBlock)));
  CHECK(absl::IsInvalidArgument(Read(subject.engine(), *file, 0, data + 512, kBlock)));
  CHECK(absl::IsInvalidArgument(Write(subject.engine(), *file, 0, data, kBlock + 512)));
  CHECK(Read(subject.engine(), *file, kBlock, data, kBlock).ok());
}

TEST_CASE("Engine: a read past the end is DATA_LOSS naming file and offset", "[io]") {
  const std::string kind = AnyKind();
  const bool direct = GENERATE(true, false);
  CAPTURE(kind, direct);
  Subject subject(kind);
  const base::AlignedBuffer bytes = RandomBuffer(4 * kBlock, 4);
  const auto file = subject.FileWith("f", bytes.data(), 4 * kBlock, direct);
  base::AlignedBuffer read = ZeroBuffer(4 * kBlock);
  // Cut inside a block, at a block, to nothing.
  for (const uint64_t size : {uint64_t{6000}, kBlock, uint64_t{0}}) {
    subject.Truncate("f", size);
    const absl::Status status = Read(subject.engine(), *file, 0, read.data(), 4 * kBlock);
    INFO(status);
    CHECK(absl::IsDataLoss(status));
    CHECK(absl::StrContains(status.message(), subject.Path("f")));
    CHECK(absl::StrContains(status.message(), absl::StrCat("at offset ", size, ":")));
    CHECK(absl::StrContains(status.message(), absl::StrCat(4 * kBlock - size, " bytes")));
  }
}

TEST_CASE("Engine: a write to a file opened for reading fails with its name", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  Subject subject(kind);
  const base::AlignedBuffer bytes = RandomBuffer(kBlock, 5);
  subject.FileWith("f", bytes.data(), kBlock, false);
  const auto file = MustOpen(subject.files(), subject.Path("f"), OpenMode::kRead);
  const absl::Status status = Write(subject.engine(), *file, 0, bytes.data(), kBlock);
  CHECK(absl::IsInternal(status));
  CHECK(absl::StrContains(status.message(), subject.Path("f") + " at offset 0"));
}

TEST_CASE("Engine: a transfer of nothing succeeds", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  Subject subject(kind);
  const base::AlignedBuffer bytes = RandomBuffer(kBlock, 5);
  const auto file = subject.FileWith("f", bytes.data(), kBlock, false);
  CHECK(Read(subject.engine(), *file, 10 * kBlock, nullptr, 0).ok());
  CHECK(Write(subject.engine(), *file, 10 * kBlock, nullptr, 0).ok());
  CHECK(*file->Size() == kBlock);
}

TEST_CASE("Engine: far more transfers than its depth all end, each with its own bytes", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  Subject subject(kind, {.depth = 4, .threads = 2});
  constexpr uint64_t kCount = 1000;
  const base::AlignedBuffer written = RandomBuffer(kCount * kBlock, 6);
  const auto file = MustOpen(subject.files(), subject.Path("f"), OpenMode::kCreate, true);
  REQUIRE(file->Allocate(kCount * kBlock).ok());
  base::AlignedBuffer read = ZeroBuffer(kCount * kBlock);
  Batch writes(subject.engine());
  Batch reads(subject.engine());
  for (uint64_t at = 0; at < kCount * kBlock; at += kBlock) {
    writes.Add({IoOp::kWrite, file.get(), at, written.data() + at, kBlock});
    reads.Add({IoOp::kRead, file.get(), at, read.data() + at, kBlock});
  }
  writes.Run();
  REQUIRE(writes.first_error() == absl::OkStatus());
  reads.Run();
  REQUIRE(reads.first_error() == absl::OkStatus());
  CHECK(SameBytes(read.data(), written.data(), kCount * kBlock));
}

TEST_CASE("Engine: of a batch only the transfer that fails is told so", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  Subject subject(kind);
  const base::AlignedBuffer bytes = RandomBuffer(8 * kBlock, 7);
  const auto file = subject.FileWith("f", bytes.data(), 8 * kBlock, true);
  base::AlignedBuffer read = ZeroBuffer(9 * kBlock);
  Batch batch(subject.engine());
  for (uint64_t at = 0; at < 9 * kBlock; at += kBlock) {
    batch.Add({IoOp::kRead, file.get(), at, read.data() + at, kBlock});
  }
  batch.Run();
  for (size_t index = 0; index < 8; ++index) {
    CHECK(batch.status(index).ok());
  }
  CHECK(absl::IsDataLoss(batch.status(8)));
}

struct Chain {
  IoEngine* engine = nullptr;
  std::thread::id submitter;
  int left = 0;
  bool inside_submit = false;
  absl::Status error;
  absl::Notification ended;
};

TEST_CASE("Engine: done runs outside Submit and may submit the next transfer", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  Subject subject(kind, {.depth = 1, .threads = 1});
  const base::AlignedBuffer bytes = RandomBuffer(kBlock, 8);
  const auto file = subject.FileWith("f", bytes.data(), kBlock, true);
  Chain chain{.engine = &subject.engine(), .submitter = std::this_thread::get_id(), .left = 100};
  Transfer transfer{IoOp::kRead, file.get(), 0, bytes.data(), kBlock};
  transfer.context = &chain;
  transfer.done = [](Transfer* moved, absl::Status status) noexcept {
    auto* links = static_cast<Chain*>(moved->context);
    links->inside_submit |= std::this_thread::get_id() == links->submitter;
    links->error.Update(status);
    if (--links->left == 0) {
      links->ended.Notify();
    } else {
      links->engine->Submit(moved);
    }
  };
  subject.engine().Submit(&transfer);
  chain.ended.WaitForNotification();
  CHECK(chain.error == absl::OkStatus());
  CHECK(!chain.inside_submit);
}

TEST_CASE("Engine: threads may submit side by side", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  Subject subject(kind, {.depth = 3});
  constexpr uint64_t kThreads = 4;
  constexpr uint64_t kEach = 64;
  const base::AlignedBuffer bytes = RandomBuffer(kThreads * kEach * kBlock, 9);
  const auto file = subject.FileWith("f", bytes.data(), kThreads * kEach * kBlock, true);
  base::AlignedBuffer read = ZeroBuffer(kThreads * kEach * kBlock);
  std::vector<absl::Status> errors(kThreads);
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      Batch batch(subject.engine());
      for (uint64_t index = thread * kEach; index < (thread + 1) * kEach; ++index) {
        const uint64_t at = index * kBlock;
        batch.Add({IoOp::kRead, file.get(), at, read.data() + at, kBlock});
      }
      batch.Run();
      errors[thread] = batch.first_error();
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK(errors == std::vector<absl::Status>(kThreads));
  CHECK(SameBytes(read.data(), bytes.data(), kThreads * kEach * kBlock));
}

TEST_CASE("Engine: ends only after everything submitted ended", "[io]") {
  const std::string kind = GENERATE(from_range(RealKinds()));
  CAPTURE(kind);
  Subject subject(kind, {.depth = 2, .threads = 2});
  const base::AlignedBuffer bytes = RandomBuffer(64 * kBlock, 10);
  const auto file = subject.FileWith("f", bytes.data(), 64 * kBlock, true);
  Batch batch(subject.engine());
  for (uint64_t at = 0; at < 64 * kBlock; at += kBlock) {
    batch.Add({IoOp::kWrite, file.get(), at, bytes.data() + at, kBlock});
  }
  batch.Submit();
  subject.EndEngine();
  CHECK(batch.order().size() == 64);
  CHECK(batch.first_error() == absl::OkStatus());
}

TEST_CASE("Engine: the age of the oldest transfer grows while it waits and ends with it", "[io]") {
  const std::string kind = AnyKind();
  CAPTURE(kind);
  absl::Notification gate;
  SubjectOptions options{.depth = 1, .threads = 1};
  options.hooks.result = [&](const Transfer&, int64_t result) {
    gate.WaitForNotification();
    return result;
  };
  Subject subject(kind, options);
  const base::AlignedBuffer bytes = RandomBuffer(2 * kBlock, 11);
  const auto file = subject.FileWith("f", bytes.data(), 2 * kBlock, true);
  CHECK(subject.engine().OldestTransferNs() == 0);
  if (subject.simulated()) {
    subject.disk().Hold();
  }
  Batch batch(subject.engine());
  for (uint64_t at = 0; at < 2 * kBlock; at += kBlock) {
    batch.Add({IoOp::kRead, file.get(), at, bytes.data() + at, kBlock});
  }
  batch.Submit();
  uint64_t age_ns = 0;
  while (age_ns == 0) {
    age_ns = subject.engine().OldestTransferNs();
  }
  CHECK(subject.engine().OldestTransferNs() >= age_ns);
  gate.Notify();
  if (subject.simulated()) {
    subject.disk().Release();
  }
  batch.Wait();
  CHECK(subject.engine().OldestTransferNs() == 0);
}

TEST_CASE("Engine: a write that the system cuts short and then refuses names where", "[io]") {
  const std::string kind = GENERATE(from_range(RealKinds()));
  CAPTURE(kind);
  Subject subject(kind);
  const base::AlignedBuffer bytes = RandomBuffer(8 * kBlock, 12);
  const auto file = MustOpen(subject.files(), subject.Path("f"), OpenMode::kCreate);
  const FileSizeLimit limit(3 * kBlock);
  const absl::Status status = Write(subject.engine(), *file, 0, bytes.data(), 8 * kBlock);
  INFO(status);
  CHECK(!status.ok());
  CHECK(absl::StrContains(status.message(), absl::StrCat("f at offset ", 3 * kBlock, ":")));
  CHECK(*file->Size() == 3 * kBlock);
}

TEST_CASE("Engine: random transfers of many files match a copy in memory", "[io]") {
  const std::string kind = AnyKind();
  const uint64_t seed = std::random_device()();
  CAPTURE(kind, seed);
  std::mt19937_64 random(seed);
  Subject subject(kind, {.depth = 5, .faults = {.seed = seed, .reorder = true}});
  constexpr uint64_t kBlocks = 32;
  std::vector<std::unique_ptr<File>> files;
  std::vector<base::AlignedBuffer> expected;
  for (int number = 0; number < 4; ++number) {
    expected.push_back(RandomBuffer(kBlocks * kBlock, seed + static_cast<uint64_t>(number)));
    files.push_back(subject.FileWith(absl::StrCat("f", number), expected.back().data(),
                                     kBlocks * kBlock, number % 2 == 0));
  }
  for (int round = 0; round < 20; ++round) {
    const base::AlignedBuffer fresh = RandomBuffer(kBlocks * kBlock, random());
    Batch batch(subject.engine());
    for (size_t number = 0; number < files.size(); ++number) {
      const uint64_t first = random() % kBlocks;
      const uint64_t length = (1 + random() % (kBlocks - first)) * kBlock;
      std::memcpy(expected[number].data() + first * kBlock, fresh.data(), length);
      batch.Add({IoOp::kWrite, files[number].get(), first * kBlock, fresh.data(), length});
    }
    batch.Run();
    REQUIRE(batch.first_error() == absl::OkStatus());
  }
  for (size_t number = 0; number < files.size(); ++number) {
    base::AlignedBuffer read = ZeroBuffer(kBlocks * kBlock);
    REQUIRE(Read(subject.engine(), *files[number], 0, read.data(), kBlocks * kBlock).ok());
    CHECK(SameBytes(read.data(), expected[number].data(), kBlocks * kBlock));
  }
}

}  // namespace
}  // namespace moment::io
