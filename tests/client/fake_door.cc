// fd.sock of the fake daemon.
#include <sys/socket.h>
#include <sys/uio.h>

#include <cstring>
#include <string>

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

void FakeDaemon::AnswerDescriptors(int connection) {
  v1::DescriptorRequest request = {};
  iovec part = {&request, sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
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
  client::RingDescriptors ring;
  int numbers[4] = {-1, -1, -1, -1};
  if (request.request == v1::DESCRIPTOR_REQUEST_OFFER) {
    int offered = -1;
    std::memcpy(&offered, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof offered);
    const client::UniqueFd owned(offered);
    pidfds_ += request.kind == v1::DESCRIPTOR_KIND_PIDFD ? 1 : 0;
    message.msg_controllen = 0;
  } else {
    absl::MutexLock lock(&mutex_);
    reply.code = static_cast<int32_t>(grpc::StatusCode::NOT_FOUND);
    for (auto& [id, live] : sessions_) {
      if (live->token == std::string(reinterpret_cast<char*>(request.token), 16) &&
          live->ring != nullptr) {
        ring = live->ring->Descriptors();
        reply.code = 0;
        reply.count = 4;
      }
    }
    const int found[4] = {ring.control.get(), ring.slots.get(), ring.to_client.get(),
                          ring.to_daemon.get()};
    std::memcpy(numbers, found, sizeof numbers);
  }
  part = {&reply, sizeof reply};
  if (reply.count == 4) {
    message.msg_controllen = CMSG_SPACE(sizeof numbers);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof numbers);
    std::memcpy(CMSG_DATA(header), numbers, sizeof numbers);
  } else {
    message.msg_control = nullptr;
    message.msg_controllen = 0;
  }
  ::sendmsg(connection, &message, MSG_NOSIGNAL);
}

}  // namespace moment::testing
