// fd.sock of the fake daemon.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "proto/moment/v1/descriptors.h"
#include "tests/client/fake_daemon.h"

namespace moment::testing {

void FakeDaemon::ServeDescriptors() {
  for (;;) {
    const client::UniqueFd connection(::accept4(door_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.valid()) {
      return;
    }
    AnswerDescriptors(connection.get());
  }
}

absl::optional<std::vector<client::UniqueFd>> FakeDaemon::Taken(
    const v1::DescriptorRequest& request) {
  const std::string token(reinterpret_cast<const char*>(request.token), sizeof request.token);
  std::vector<client::UniqueFd> taken;
  for (auto& [id, live] : sessions_) {
    if (live->token != token) {
      continue;
    }
    if (request.request == v1::DESCRIPTOR_REQUEST_TAKE_RING && live->ring != nullptr) {
      client::RingDescriptors ring = live->ring->Descriptors();
      for (client::UniqueFd* fd : {&ring.control, &ring.slots, &ring.to_client, &ring.to_daemon}) {
        taken.push_back(std::move(*fd));
      }
      return taken;
    }
    const std::string pin(request.pin, ::strnlen(request.pin, sizeof request.pin));
    const auto found = live->pins.find(pin);
    if (request.request == v1::DESCRIPTOR_REQUEST_TAKE_PIN && found != live->pins.end()) {
      const size_t end =
          std::min<size_t>(found->second.size(), size_t{request.first} + MOMENT_DESCRIPTORS_MAX);
      for (size_t i = request.first; i < end; ++i) {
        taken.emplace_back(::fcntl(found->second[i].get(), F_DUPFD_CLOEXEC, 0));
      }
      return taken;
    }
  }
  return absl::nullopt;
}

void FakeDaemon::AnswerDescriptors(int connection) {
  v1::DescriptorRequest request = {};
  iovec part = {&request, sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(MOMENT_DESCRIPTORS_MAX * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (::recvmsg(connection, &message, MSG_CMSG_CLOEXEC) != sizeof request) {
    return;
  }
  v1::DescriptorReply reply = {};
  reply.magic = MOMENT_DESCRIPTORS_MAGIC;
  reply.version = 1;
  absl::optional<std::vector<client::UniqueFd>> taken = std::vector<client::UniqueFd>();
  if (request.request == v1::DESCRIPTOR_REQUEST_OFFER) {
    int offered = -1;
    std::memcpy(&offered, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof offered);
    const client::UniqueFd owned(offered);
    pidfds_ += request.kind == v1::DESCRIPTOR_KIND_PIDFD ? 1 : 0;
  } else {
    absl::MutexLock lock(&mutex_);
    taken = Taken(request);
  }
  reply.code = taken.has_value() ? 0 : static_cast<int32_t>(grpc::StatusCode::NOT_FOUND);
  reply.count = taken.has_value() ? static_cast<uint32_t>(taken->size()) : 0;
  part = {&reply, sizeof reply};
  message.msg_control = reply.count > 0 ? control : nullptr;
  message.msg_controllen = reply.count > 0 ? CMSG_SPACE(reply.count * sizeof(int)) : 0;
  if (reply.count > 0) {
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(reply.count * sizeof(int));
    for (size_t i = 0; i < taken->size(); ++i) {
      const int number = (*taken)[i].get();
      std::memcpy(CMSG_DATA(header) + i * sizeof number, &number, sizeof number);
    }
  }
  ::sendmsg(connection, &message, MSG_NOSIGNAL);
}

}  // namespace moment::testing
