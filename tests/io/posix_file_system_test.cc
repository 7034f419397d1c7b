#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/io/file_system.h"
#include "daemon/io/file_system_type.h"
#include "daemon/io/thread_engine.h"
#include "tests/io/io_test_support.h"
#include "tests/support/catch.h"

namespace moment::io {
namespace {

class PosixFiles {
 public:
  FileSystem& files() { return *files_; }
  std::string Path(const std::string& name) const { return directory_.Path(name); }
  const std::string& root() const { return directory_.path(); }

 private:
  TemporaryDirectory directory_;
  std::unique_ptr<FileSystem> files_ = CreatePosixFileSystem();
};

TEST_CASE("PosixFileSystem: creating a name that exists is ALREADY_EXISTS", "[io]") {
  PosixFiles test;
  MustOpen(test.files(), test.Path("a"), OpenMode::kCreate);
  const auto again = test.files().Open(test.Path("a"), {.mode = OpenMode::kCreate});
  CHECK(absl::IsAlreadyExists(again.status()));
  CHECK(again.status().message() == "create " + test.Path("a") + ": File exists");
}

TEST_CASE("PosixFileSystem: a missing file is NOT_FOUND with its path", "[io]") {
  PosixFiles test;
  const auto opened = test.files().Open(test.Path("none"), {});
  CHECK(absl::IsNotFound(opened.status()));
  CHECK(opened.status().message() == "open " + test.Path("none") + ": No such file or directory");
}

TEST_CASE("PosixFileSystem: permissions do not depend on the umask", "[io]") {
  PosixFiles test;
  const mode_t before = ::umask(077);
  const auto file =
      test.files().Open(test.Path("a"), {.mode = OpenMode::kCreate, .permissions = 0664});
  const absl::Status made = test.files().CreateDirectory(test.Path("d"), 0775);
  ::umask(before);
  REQUIRE(file.ok());
  REQUIRE(made.ok());
  CHECK(test.files().Stat(test.Path("a"))->permissions == 0664);
  CHECK(test.files().Stat(test.Path("d"))->permissions == 0775);
}

TEST_CASE("PosixFileSystem: a directory or a FIFO is not opened as a file", "[io]") {
  PosixFiles test;
  REQUIRE(::mkfifo(test.Path("fifo").c_str(), 0600) == 0);
  CHECK(absl::IsFailedPrecondition(test.files().Open(test.root(), {}).status()));
  CHECK(absl::IsFailedPrecondition(test.files().Open(test.Path("fifo"), {}).status()));
}

TEST_CASE("PosixFileSystem: a direct file keeps O_DIRECT and blocks", "[io]") {
  PosixFiles test;
  const auto file = MustOpen(test.files(), test.Path("a"), OpenMode::kCreate, true);
  const int flags = ::fcntl(file->fd(), F_GETFL);
  CHECK((flags & O_DIRECT) != 0);
  // io_uring answers EAGAIN instead of waiting on a non-blocking file.
  CHECK((flags & O_NONBLOCK) == 0);
  CHECK((::fcntl(file->fd(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("PosixFile: Allocate reserves zeros and forgets what the file held", "[io]") {
  PosixFiles test;
  ThreadEngine engine(1, {});
  const auto file = MustOpen(test.files(), test.Path("a"), OpenMode::kCreate);
  const base::AlignedBuffer written = RandomBuffer(8192, 1);
  REQUIRE(Write(engine, *file, 0, written.data(), 8192).ok());
  REQUIRE(file->Allocate(16384).ok());
  CHECK(*file->Size() == 16384);
  CHECK(test.files().Stat(test.Path("a"))->allocated_bytes >= 16384);
  base::AlignedBuffer read = RandomBuffer(16384, 2);
  REQUIRE(Read(engine, *file, 0, read.data(), 16384).ok());
  CHECK(SameBytes(read.data(), ZeroBuffer(16384).data(), 16384));
}

TEST_CASE("PosixFile: Allocate beyond the free space is RESOURCE_EXHAUSTED", "[io]") {
  PosixFiles test;
  const auto file = MustOpen(test.files(), test.Path("a"), OpenMode::kCreate);
  const auto space = test.files().FreeSpace(test.root());
  REQUIRE(space.ok());
  CHECK(space->free_bytes <= space->total_bytes);
  const absl::Status status = file->Allocate(space->total_bytes + (uint64_t{1} << 40));
  INFO(status);
  CHECK(absl::IsResourceExhausted(status));
  CHECK(*file->Size() == 0);
}

TEST_CASE("PosixFileSystem: links, renames and lists", "[io]") {
  PosixFiles test;
  MustOpen(test.files(), test.Path("b"), OpenMode::kCreate);
  REQUIRE(test.files().Link(test.Path("b"), test.Path("a")).ok());
  CHECK(test.files().Stat(test.Path("a"))->links == 2);
  CHECK(test.files().Stat(test.Path("a"))->inode == test.files().Stat(test.Path("b"))->inode);
  REQUIRE(test.files().Rename(test.Path("b"), test.Path("c")).ok());
  CHECK(*test.files().List(test.root()) == std::vector<std::string>{"a", "c"});
  REQUIRE(test.files().Unlink(test.Path("c")).ok());
  CHECK(test.files().Stat(test.Path("a"))->links == 1);
  CHECK(test.files().SyncDirectory(test.root()).ok());
}

TEST_CASE("CreateDirectories: makes every missing parent and accepts existing ones", "[io]") {
  PosixFiles test;
  REQUIRE(CreateDirectories(test.files(), test.Path("x/y/z"), 0750).ok());
  CHECK(test.files().Stat(test.Path("x/y/z"))->directory);
  CHECK(CreateDirectories(test.files(), test.Path("x/y/z"), 0750).ok());
  MustOpen(test.files(), test.Path("file"), OpenMode::kCreate);
  CHECK(absl::IsFailedPrecondition(CreateDirectories(test.files(), test.Path("file"), 0750)));
  CHECK(!CreateDirectories(test.files(), test.Path("file/under"), 0750).ok());
}

TEST_CASE("ProbeDirectory: a real write and read leave nothing behind", "[io]") {
  PosixFiles test;
  const auto probe = ProbeDirectory(test.root());
  INFO(probe.status());
  REQUIRE(probe.ok());
  CHECK(!probe->file_system.empty());
  CHECK(probe->direct_io == probe->direct_io_reason.empty());
  CHECK(test.files().List(test.root())->empty());
}

TEST_CASE("ProbeDirectory: a missing directory and one without write access are errors", "[io]") {
  PosixFiles test;
  CHECK(absl::IsNotFound(ProbeDirectory(test.Path("none")).status()));
  CHECK(!ProbeDirectory("/proc").ok());
}

TEST_CASE("ProbeDirectory: says why direct I/O does not work", "[io]") {
  PosixFiles test;
  const FileSizeLimit limit(0);
  const auto probe = ProbeDirectory(test.root());
  REQUIRE(probe.ok());
  CHECK(!probe->direct_io);
  CHECK(probe->direct_io_reason == "an aligned direct write failed: File too large");
}

TEST_CASE("ClassifyFileSystem: knows which forget, which are remote, which were checked", "[io]") {
  CHECK(ClassifyFileSystem(0xEF53).is_known);
  CHECK(ClassifyFileSystem(0x58465342).name == "xfs");
  CHECK(ClassifyFileSystem(0x01021994).is_volatile);
  CHECK(ClassifyFileSystem(0x794C7630).name == "overlay");
  CHECK(ClassifyFileSystem(0x6969).is_network);
  CHECK(ClassifyFileSystem(0x65735546).is_network);
  CHECK(!ClassifyFileSystem(0x9123683E).is_known);
  CHECK(ClassifyFileSystem(0xABCD).name == "0xabcd");
}

TEST_CASE("ProbeDirectory: tmpfs is volatile and the probe finds what it can do", "[io]") {
  const auto probe = ProbeDirectory("/dev/shm");
  if (!probe.ok() || probe->file_system != "tmpfs") {
    WARN("/dev/shm is no tmpfs here: not checked");
    return;
  }
  CHECK(probe->is_volatile);
  CHECK(probe->is_known);
  CHECK(!probe->is_network);
}

}  // namespace
}  // namespace moment::io
