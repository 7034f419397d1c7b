#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/base/fd.h"
#include "tests/io/engine_subject.h"
#include "tests/io/io_test_support.h"
#include "tests/support/catch.h"

namespace moment::io {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
constexpr uint64_t kPieces = 64;
constexpr uint64_t kLength = kPieceBytes * kPieces;

// io_child, started with these arguments and killed at the latest by the destructor.
class Child {
 public:
  explicit Child(const std::vector<std::string>& arguments) {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    output_.Reset(ends[0]);
    base::UniqueFd input(ends[1]);
    std::vector<char*> argv = {const_cast<char*>(MOMENT_IO_CHILD)};
    for (const std::string& argument : arguments) {
      argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::dup2(input.get(), STDOUT_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Child() { KillAndWait(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  std::string FirstOutput() {
    std::string text(64, '\0');
    const ssize_t got = ::read(output_.get(), text.data(), text.size());
    text.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return text;
  }
  void Kill() { ::kill(pid_, SIGKILL); }

 private:
  void KillAndWait() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  base::UniqueFd output_;
  pid_t pid_ = -1;
};

// Which pieces have the child's bytes at their ends: a look that is quick, the last pieces first.
std::vector<bool> Landed(IoEngine& engine, File& file) {
  constexpr uint64_t kBlock = 4096;
  base::AlignedBuffer ends = ZeroBuffer(kPieces * kBlock);
  Batch batch(engine);
  for (uint64_t piece = kPieces; piece > 0; --piece) {
    batch.Add({IoOp::kRead, &file, piece * kPieceBytes - kBlock, ends.data() + (piece - 1) * kBlock,
               kBlock});
  }
  batch.Run();
  REQUIRE(batch.first_error() == absl::OkStatus());
  std::vector<bool> landed;
  for (uint64_t piece = 0; piece < kPieces; ++piece) {
    landed.push_back(ends.data()[piece * kBlock] == std::byte{'A'});
  }
  return landed;
}

TEST_CASE("Engine: a killed process's lock is free only after its last write", "[io]") {
  const std::string kind = GENERATE(from_range(RealKinds()));
  CAPTURE(kind);
  Subject subject("threads");
  auto file = subject.files().Open(subject.Path("f"), {.mode = OpenMode::kCreate, .direct = true});
  if (!file.ok()) {
    WARN("no direct I/O here, writes in flight cannot be seen: " << file.status());
    return;
  }
  REQUIRE((*file)->Allocate(kLength).ok());
  const base::UniqueFd lock(
      ::open(subject.Path("LOCK").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  REQUIRE(lock.valid());

  Child child({"write", kind, subject.Path("LOCK"), subject.Path("f"), absl::StrCat(kPieceBytes),
               absl::StrCat(kPieces)});
  REQUIRE(child.FirstOutput() == "ready\n");
  child.Kill();
  REQUIRE(::flock(lock.get(), LOCK_EX) == 0);

  // What landed has landed: later looks find no more of it.
  const std::vector<bool> landed = Landed(subject.engine(), **file);
  base::AlignedBuffer rest = ZeroBuffer(kLength);
  for (int round = 0; round < 4; ++round) {
    REQUIRE(Read(subject.engine(), **file, 0, rest.data(), kLength).ok());
    CHECK(Landed(subject.engine(), **file) == landed);
  }
}

}  // namespace
}  // namespace moment::io
