// What the engine tests need a process of its own for.
//   io_child refused <errno> all|enter|register <directory>
//       creates an engine after those io_uring calls were forbidden with <errno>; prints its name,
//       moves bytes with it and prints its reason
//   io_child write io_uring|threads <lock file> <file> <piece bytes> <pieces>
//       locks, submits a write of every piece, all in flight, prints "ready" and waits to
//       be killed
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "daemon/base/memory.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"

namespace moment::io {
namespace {

int Fail(const std::string& what) {
  std::printf("failed: %s\n", what.c_str());
  return 1;
}

bool Forbid(const std::vector<uint32_t>& calls, uint32_t error) {
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const uint32_t call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (error & SECCOMP_RET_DATA)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

std::vector<uint32_t> CallsOf(const std::string& name) {
  if (name == "enter") {
    return {__NR_io_uring_enter};
  }
  if (name == "register") {
    return {__NR_io_uring_register};
  }
  return {__NR_io_uring_setup, __NR_io_uring_enter, __NR_io_uring_register};
}

absl::Status WriteAndRead(IoEngine& engine, const std::string& path) {
  constexpr uint64_t kLength = 65536;
  const auto file = CreatePosixFileSystem()->Open(path, {.mode = OpenMode::kCreate});
  const auto buffer = base::AlignedBuffer::Allocate(2 * kLength);
  if (!file.ok() || !buffer.ok()) {
    return absl::InternalError("no file or memory");
  }
  std::memset(buffer->data(), 0x77, kLength);
  absl::Status status = Write(engine, **file, 0, buffer->data(), kLength);
  status.Update(Sync(engine, **file));
  status.Update(Read(engine, **file, 0, buffer->data() + kLength, kLength));
  const bool same = std::memcmp(buffer->data(), buffer->data() + kLength, kLength) == 0;
  return same ? status : absl::InternalError("other bytes came back");
}

int Refused(char** argv) {
  const auto error = static_cast<uint32_t>(std::atoi(argv[2]));
  if (!Forbid(CallsOf(argv[3]), error)) {
    return Fail("seccomp");
  }
  const auto created = CreateEngine({});
  if (!created.ok()) {
    return Fail(std::string(created.status().message()));
  }
  const absl::Status moved = WriteAndRead(*created->engine, std::string(argv[4]) + "/f");
  if (!moved.ok()) {
    return Fail(std::string(moved.message()));
  }
  const auto asked = CreateEngine({.kind = EngineKind::kIoUring});
  std::printf("%s|%s|%s\n", created->engine->name(), created->reason.c_str(),
              std::string(asked.status().message()).c_str());
  return 0;
}

int WriteUntilKilled(char** argv) {
  const auto piece_bytes = static_cast<uint64_t>(std::atoll(argv[5]));
  const auto pieces = static_cast<uint64_t>(std::atoll(argv[6]));
  const int lock = ::open(argv[3], O_RDWR | O_CLOEXEC);
  if (lock < 0 || ::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return Fail("lock");
  }
  EngineOptions options;
  options.kind = std::string(argv[2]) == "threads" ? EngineKind::kThreads : EngineKind::kIoUring;
  options.held_fds = {lock};
  options.depth = static_cast<uint32_t>(pieces);
  const auto created = CreateEngine(options);
  const auto file =
      CreatePosixFileSystem()->Open(argv[4], {.mode = OpenMode::kReadWrite, .direct = true});
  const auto buffer = base::AlignedBuffer::Allocate(piece_bytes);
  if (!created.ok() || !file.ok() || !buffer.ok()) {
    return Fail("engine, file or memory");
  }
  std::memset(buffer->data(), 'A', piece_bytes);
  std::vector<Transfer> transfers(pieces);
  for (uint64_t index = 0; index < pieces; ++index) {
    transfers[index] = {IoOp::kWrite, file->get(), index * piece_bytes, buffer->data(),
                        piece_bytes};
    transfers[index].done = [](Transfer*, absl::Status) noexcept {};
    created->engine->Submit(&transfers[index]);
  }
  std::printf("ready\n");
  std::fflush(stdout);
  while (true) {
    ::pause();
  }
}

}  // namespace
}  // namespace moment::io

int main(int argc, char** argv) {
  if (argc == 5 && std::string(argv[1]) == "refused") {
    return moment::io::Refused(argv);
  }
  if (argc == 7 && std::string(argv[1]) == "write") {
    return moment::io::WriteUntilKilled(argv);
  }
  return 2;
}
