#include "daemon/system_notify.h"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include "daemon/base/fd.h"

namespace moment {

void NotifySystem(absl::string_view state) {
  const char* const path = std::getenv("NOTIFY_SOCKET");
  if (path == nullptr || *path == '\0') {
    return;
  }
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const size_t length = std::strlen(path);
  if (length >= sizeof(address.sun_path)) {
    spdlog::warn("event=notify error=\"NOTIFY_SOCKET is too long\"");
    return;
  }
  std::memcpy(address.sun_path, path, length);
  if (address.sun_path[0] == '@') {  // an abstract name
    address.sun_path[0] = '\0';
  }
  const base::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const auto address_bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  if (::sendto(socket.get(), state.data(), state.size(), MSG_NOSIGNAL,
               reinterpret_cast<const sockaddr*>(&address), address_bytes) < 0) {
    spdlog::warn("event=notify error=\"{}\"", std::strerror(errno));
  }
}

}  // namespace moment
