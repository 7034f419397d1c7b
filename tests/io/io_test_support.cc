#include "tests/io/io_test_support.h"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "tests/support/catch.h"

namespace moment::io {

TemporaryDirectory::TemporaryDirectory() {
  path_ = (std::filesystem::temp_directory_path() / "moment-io-XXXXXX").string();
  REQUIRE(::mkdtemp(path_.data()) != nullptr);
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

FileSizeLimit::FileSizeLimit(uint64_t limit_bytes) {
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
  handler_ = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{limit_bytes, before_.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

FileSizeLimit::~FileSizeLimit() {
  ::setrlimit(RLIMIT_FSIZE, &before_);
  std::signal(SIGXFSZ, handler_);
}

base::AlignedBuffer ZeroBuffer(uint64_t length_bytes) {
  auto buffer = base::AlignedBuffer::Allocate(length_bytes);
  REQUIRE(buffer.ok());
  return *std::move(buffer);
}

base::AlignedBuffer RandomBuffer(uint64_t length_bytes, uint64_t seed) {
  base::AlignedBuffer buffer = ZeroBuffer(length_bytes);
  std::mt19937_64 random(seed);
  for (uint64_t at = 0; at + sizeof(uint64_t) <= buffer.size(); at += sizeof(uint64_t)) {
    const uint64_t value = random();
    std::memcpy(buffer.data() + at, &value, sizeof(value));
  }
  return buffer;
}

bool SameBytes(const std::byte* left, const std::byte* right, uint64_t length_bytes) {
  return std::memcmp(left, right, length_bytes) == 0;
}

std::vector<std::byte> Bytes(const std::string& text) {
  const auto* first = reinterpret_cast<const std::byte*>(text.data());
  return {first, first + text.size()};
}

std::unique_ptr<File> MustOpen(FileSystem& files, const std::string& path, OpenMode mode,
                               bool direct) {
  auto file = files.Open(path, {.mode = mode, .direct = direct});
  INFO(file.status());
  REQUIRE(file.ok());
  return *std::move(file);
}

void Batch::Add(const Transfer& transfer) {
  auto entry = std::make_unique<Entry>();
  entry->transfer = transfer;
  entry->transfer.done = &Batch::Done;
  entry->transfer.context = entry.get();
  entry->index = entries_.size();
  entry->batch = this;
  entries_.push_back(std::move(entry));
}

void Batch::Done(Transfer* transfer, absl::Status status) noexcept {
  auto* entry = static_cast<Entry*>(transfer->context);
  entry->status = std::move(status);
  {
    absl::MutexLock lock(&entry->batch->mutex_);
    entry->batch->order_.push_back(entry->index);
  }
  entry->batch->left_->DecrementCount();
}

void Batch::Submit() {
  left_ = std::make_unique<absl::BlockingCounter>(static_cast<int>(entries_.size()));
  for (const std::unique_ptr<Entry>& entry : entries_) {
    engine_.Submit(&entry->transfer);
  }
}

void Batch::Wait() { left_->Wait(); }

void Batch::Run() {
  Submit();
  Wait();
}

absl::Status Batch::first_error() const {
  for (const std::unique_ptr<Entry>& entry : entries_) {
    if (!entry->status.ok()) {
      return entry->status;
    }
  }
  return absl::OkStatus();
}

}  // namespace moment::io
