#include "daemon/cli/host_checks.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "daemon/cli/units.h"
#include "daemon/io/file_system.h"
#include "daemon/io/io_engine.h"

namespace moment::cli {
namespace {

constexpr char kLockedMemory[] = "locked-memory";
constexpr char kFileLimit[] = "file-limit";
constexpr char kIoUring[] = "io-uring";
constexpr char kStateDirectory[] = "state-directory";

constexpr uint64_t kEnoughLockedBytes = uint64_t{8} << 20;  // what most systems give
constexpr uint64_t kLeastFiles = 256;
constexpr uint64_t kEnoughFiles = 1024;
constexpr uint32_t kCapIpcLock = 14;

rlimit LimitOf(int resource) {
  rlimit limit = {};
  ::getrlimit(static_cast<__rlimit_resource>(resource), &limit);
  return limit;
}

std::string LimitText(uint64_t bytes) {
  return bytes == RLIM_INFINITY ? "unlimited" : HumanBytes(bytes);
}

// CAP_IPC_LOCK lifts the limit.
bool HasIpcLock() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view text = line;
    uint64_t capabilities = 0;
    if (absl::ConsumePrefix(&text, "CapEff:\t") && absl::SimpleHexAtoi(text, &capabilities)) {
      return (capabilities >> kCapIpcLock & 1) != 0;
    }
  }
  return false;
}

}  // namespace

Check CheckLockedMemory() {
  return JudgeLockedMemory(LimitOf(RLIMIT_MEMLOCK).rlim_cur, HasIpcLock());
}

Check JudgeLockedMemory(uint64_t limit_bytes, bool is_exempt) {
  if (is_exempt) {
    return Fine(kLockedMemory, "",
                absl::StrCat("limit ", LimitText(limit_bytes), ", which CAP_IPC_LOCK lifts"));
  }
  if (limit_bytes >= kEnoughLockedBytes) {
    return Fine(kLockedMemory, "", absl::StrCat("limit ", LimitText(limit_bytes)));
  }
  return {
      kLockedMemory, "", Verdict::kWarning, absl::StrCat("limit ", LimitText(limit_bytes)),
      "kernels before 5.12 count io_uring against it: set LimitMEMLOCK=infinity in the unit, or "
      "--ulimit memlock=-1 for a container"};
}

Check CheckFileLimit() {
  const rlimit limit = LimitOf(RLIMIT_NOFILE);
  return JudgeFileLimit(limit.rlim_cur, limit.rlim_max);
}

Check JudgeFileLimit(uint64_t soft, uint64_t hard) {
  const std::string finding = absl::StrCat(soft, " descriptors (hard limit ", hard, ")");
  if (soft >= kEnoughFiles) {
    return Fine(kFileLimit, "", finding);
  }
  return {kFileLimit, "", soft < kLeastFiles ? Verdict::kFailure : Verdict::kWarning, finding,
          absl::StrCat("a bucket of 200 million parameters takes 3 and a session a few dozen: set "
                       "LimitNOFILE (ulimit -n) to ",
                       kEnoughFiles, " or more")};
}

Check CheckIoUring() {
  io::EngineOptions options;
  options.threads = 1;
  const absl::StatusOr<io::CreatedEngine> created = io::CreateEngine(options);
  if (!created.ok()) {
    return {kIoUring, "", Verdict::kFailure, std::string(created.status().message()),
            "the kernel's log may tell more; io_engine = threads does without"};
  }
  if (created->reason.empty()) {
    return Fine(kIoUring, "", "works");
  }
  return {kIoUring, "", Verdict::kWarning, created->reason,
          "momentd uses threads instead, at more processor time: allow io_uring_setup, "
          "io_uring_enter and io_uring_register in the seccomp profile, and see "
          "kernel.io_uring_disabled"};
}

Check CheckStateDirectory(const std::string& path) {
  const absl::StatusOr<io::DirectoryProbe> probe = io::ProbeDirectory(path);
  const auto judge = [&path](Verdict verdict, std::string finding, std::string advice) {
    return Check{kStateDirectory, path, verdict, std::move(finding), std::move(advice)};
  };
  if (!probe.ok()) {
    return judge(Verdict::kFailure, std::string(probe.status().message()),
                 "make it, or give momentd's user the right to write there");
  }
  if (probe->is_network) {
    return judge(Verdict::kFailure, probe->file_system,
                 "momentd refuses network file systems: put it on a local drive with ext4 or xfs");
  }
  if (!probe->is_known) {
    return judge(Verdict::kFailure, probe->file_system,
                 "put it on ext4 or xfs; allow_unknown_file_system accepts this one, whose crashes "
                 "were not tested");
  }
  if (probe->is_volatile) {
    return judge(Verdict::kWarning, absl::StrCat(probe->file_system, ", volatile"),
                 "the state there is lost with the machine or the container: put it on ext4 or xfs "
                 "unless that is meant");
  }
  if (!probe->direct_io) {
    return judge(Verdict::kWarning,
                 absl::StrCat(probe->file_system, ", no direct I/O: ", probe->direct_io_reason),
                 "momentd goes through the page cache, at more memory and processor time: use a "
                 "file system that has O_DIRECT");
  }
  return Fine(kStateDirectory, path, absl::StrCat(probe->file_system, ", direct I/O"));
}

}  // namespace moment::cli
