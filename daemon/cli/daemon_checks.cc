#include "daemon/cli/daemon_checks.h"

#include "absl/strings/str_cat.h"

namespace moment::cli {
namespace {

constexpr char kDaemon[] = "daemon";

Check JudgeDirectory(const v1::StateDirectoryStatus& directory) {
  const auto judge = [&directory](Verdict verdict, std::string finding, std::string advice) {
    return Check{"daemon-directory", directory.path(), verdict, std::move(finding),
                 std::move(advice)};
  };
  if (directory.health() == "device") {
    return judge(Verdict::kFailure, "its drive does not answer",
                 "look at the drive and the kernel's log; steps wait for it");
  }
  if (directory.health() == "space") {
    return judge(Verdict::kWarning, "no room for another store",
                 "free space: running stores have theirs reserved, others cannot be opened");
  }
  if (!directory.io_engine_reason().empty()) {
    return judge(Verdict::kWarning, directory.io_engine_reason(),
                 "the daemon uses threads for I/O: see the check io-uring");
  }
  if (!directory.direct_io()) {
    return judge(Verdict::kWarning, absl::StrCat("no direct I/O: ", directory.direct_io_reason()),
                 "the daemon goes through the page cache: use a file system that has O_DIRECT");
  }
  return Fine("daemon-directory", directory.path(),
              absl::StrCat("serves, ", directory.file_system(), ", ", directory.io_engine()));
}

Check JudgeNotice(const v1::GpuNotice& notice) {
  const bool without_gpu = notice.setting() == "driver";
  return {absl::StrCat("daemon-", notice.setting()), notice.uuid(),
          without_gpu       ? Verdict::kNotApplicable
          : notice.unused() ? Verdict::kFailure
                            : Verdict::kWarning,
          notice.unused() ? "the daemon does not use this GPU" : "seen when the daemon started",
          notice.text()};
}

}  // namespace

Checks JudgeStatus(const v1::StatusResponse& status) {
  Checks checks;
  const std::string finding = absl::StrCat("momentd ", status.version(), ", pid ", status.pid());
  if (status.draining()) {
    checks.push_back({kDaemon, "", Verdict::kWarning, absl::StrCat(finding, ", draining"),
                      "it ends once its sessions have: start the next one after it"});
  } else {
    checks.push_back(Fine(kDaemon, "", finding));
  }
  for (const v1::StateDirectoryStatus& directory : status.state_directories()) {
    checks.push_back(JudgeDirectory(directory));
  }
  for (const v1::GpuNotice& notice : status.gpu_notices()) {
    checks.push_back(JudgeNotice(notice));
  }
  return checks;
}

}  // namespace moment::cli
