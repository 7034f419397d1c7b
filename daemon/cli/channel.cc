#include "daemon/cli/channel.h"

#include <fcntl.h>
#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "daemon/base/errors.h"
#include "daemon/base/fd.h"

namespace moment::cli {
namespace {

constexpr uint64_t kMaxSocketPathBytes = sizeof(sockaddr_un::sun_path) - 1;

// A layout of 100,000 tensors with long names exceeds the default limit of 4 MiB.
grpc::ChannelArguments ChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  return arguments;
}

absl::Status NoDaemon(const std::string& path, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("no daemon at ", path, ": ", why));
}

absl::Status ConnectFailure(int error, const std::string& path, absl::Duration timeout) {
  struct stat info = {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  switch (error) {
    case ENOENT:
      return NoDaemon(path,
                      "the socket does not exist (is momentd running? --socket-dir and "
                      "MOMENTD_SOCKET_DIR name its socket directory)");
    case ECONNREFUSED:
      if (exists && !S_ISSOCK(info.st_mode)) {
        return NoDaemon(path, "this is not a socket");
      }
      return NoDaemon(path,
                      "connection refused: the socket is there, but its daemon has ended (start "
                      "momentd again)");
    case EAGAIN:
      return NoDaemon(path, absl::StrCat("it accepted no connection within ",
                                         absl::FormatDuration(timeout), " (--timeout)"));
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(
          absl::StrCat("connect ", path, ": ", std::strerror(error),
                       " (run as the daemon's user, or as a member of its socket group)"));
    case ENOTDIR:
      return NoDaemon(path, std::strerror(error));
    default:
      return base::ErrnoStatus(error, "connect", path);
  }
}

// Connecting to a Unix socket waits only where its backlog is full; this bounds that.
void LimitSendTime(int fd, absl::Duration timeout) {
  const timeval limit = absl::ToTimeval(timeout);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

absl::Status ConnectSocket(int fd, const std::string& path, absl::Duration timeout) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  LimitSendTime(fd, timeout);
  int result = 0;
  do {
    result = ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  return result == 0 ? absl::OkStatus() : ConnectFailure(errno, path, timeout);
}

}  // namespace

std::string WithoutUnixScheme(absl::string_view path) {
  if (absl::ConsumePrefix(&path, "unix:")) {
    absl::ConsumePrefix(&path, "//");
  }
  return std::string(path);
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectUnix(const std::string& path,
                                                           absl::Duration timeout) {
  if (path.size() > kMaxSocketPathBytes) {
    return absl::InvalidArgumentError(absl::StrCat("socket path ", path, " has ", path.size(),
                                                   " bytes; the system takes ", kMaxSocketPathBytes,
                                                   ": use a shorter socket directory"));
  }
  base::UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return base::ErrnoStatus(errno, "create a socket for", path);
  }
  MOMENT_RETURN_IF_ERROR(ConnectSocket(fd.get(), path, timeout));
  const int flags = ::fcntl(fd.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK) != 0) {
    return base::ErrnoStatus(errno, "set non-blocking", path);
  }
  // The channel owns the descriptor from here on.
  return grpc::CreateCustomInsecureChannelFromFd("momentd", fd.Release(), ChannelArguments());
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> ConnectTcp(const std::string& address,
                                                          absl::Duration timeout) {
  std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), ChannelArguments());
  if (!channel->WaitForConnected(absl::ToChronoTime(absl::Now() + timeout))) {
    return NoDaemon(address, absl::StrCat("no connection within ", absl::FormatDuration(timeout),
                                          " (--timeout)"));
  }
  return channel;
}

absl::Status FromGrpc(const grpc::Status& status, absl::string_view peer) {
  switch (status.error_code()) {
    case grpc::StatusCode::OK:
      return absl::OkStatus();
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return absl::DeadlineExceededError(
          absl::StrCat("momentd at ", peer, " did not answer in time (--timeout)"));
    case grpc::StatusCode::UNAVAILABLE:
      return absl::UnavailableError(
          absl::StrCat("momentd at ", peer, " went away: ", status.error_message()));
    default:
      // The codes of gRPC and Abseil are the same numbers.
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                          status.error_message());
  }
}

}  // namespace moment::cli
