#include "daemon/cli/pid_check.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "daemon/base/fd.h"

namespace moment::cli {
namespace {

constexpr char kName[] = "pid-numbers";
// PROC_PID_INIT_INO of the kernel: the first PID namespace.
constexpr ino_t kFirstNamespace = 0xEFFFFFFC;

constexpr char kRemedy[] =
    "let trainer and daemon share a PID namespace (Kubernetes: shareProcessNamespace or hostPID), "
    "or start one of them behind an init (docker --init), or let torch share descriptors "
    "(PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)";

}  // namespace

Check JudgePids(const PidFacts& facts) {
  if (!facts.daemon.has_value()) {
    if (!facts.in_own_namespace) {
      return Fine(kName, "", "the machine's own PID namespace");
    }
    return {kName, "", Verdict::kWarning,
            absl::StrCat("a PID namespace of its own, in which this process is ", facts.own),
            absl::StrCat("a trainer and a daemon with the same number in two namespaces cannot "
                         "share by handles: ",
                         kRemedy)};
  }
  if (facts.daemon_from_us == facts.daemon) {
    return Fine(kName, "", absl::StrCat("the daemon is ", *facts.daemon, " here and there"));
  }
  const std::string finding =
      absl::StrCat("the daemon is in another PID namespace, in which it is ", *facts.daemon);
  if (*facts.daemon == facts.own) {
    return {kName, "", Verdict::kFailure, absl::StrCat(finding, ", as this process is here"),
            absl::StrCat("the driver would take it for the daemon: ", kRemedy)};
  }
  return {kName, "", Verdict::kWarning, finding,
          absl::StrCat("a trainer whose number here is ", *facts.daemon,
                       " cannot share by handles: ", kRemedy)};
}

PidFacts OwnPidFacts() {
  PidFacts facts;
  struct stat status {};
  facts.own = ::getpid();
  facts.in_own_namespace =
      ::stat("/proc/self/ns/pid", &status) == 0 && status.st_ino != kFirstNamespace;
  return facts;
}

std::optional<pid_t> ListenerPid(const std::string& socket_path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (socket_path.size() >= sizeof(address.sun_path)) {
    return std::nullopt;
  }
  std::memcpy(address.sun_path, socket_path.data(), socket_path.size());
  const base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ucred credentials = {};
  socklen_t length = sizeof(credentials);
  if (!fd.valid() ||
      ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return std::nullopt;
  }
  return credentials.pid;
}

}  // namespace moment::cli
