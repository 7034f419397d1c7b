#include "client/src/descriptor_door.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/src/errors.h"
#include "proto/moment/v1/descriptors.h"

namespace moment::client {
namespace {

constexpr int kReplySeconds = 10;
constexpr size_t kRingDescriptors = 4;

absl::StatusOr<UniqueFd> Connect(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return absl::InvalidArgumentError(absl::StrCat("socket path too long: ", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) {
    return FromErrno(errno, "making a socket for", path);
  }
  const timeval timeout = {kReplySeconds, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return FromErrno(errno, "connecting to", path);
  }
  return fd;
}

// At most MOMENT_DESCRIPTORS_MAX.
using Offered = absl::Span<const UniqueFd>;

absl::Status Send(const UniqueFd& socket, v1::DescriptorRequest request, Offered offered,
                  const std::string& path) {
  iovec part = {&request, sizeof request};
  alignas(cmsghdr) char control[CMSG_SPACE(MOMENT_DESCRIPTORS_MAX * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!offered.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(offered.size() * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(offered.size() * sizeof(int));
    for (size_t i = 0; i < offered.size(); ++i) {
      const int number = offered[i].get();
      std::memcpy(CMSG_DATA(header) + i * sizeof number, &number, sizeof number);
    }
  }
  if (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof request)) {
    return FromErrno(errno, "asking", path);
  }
  return absl::OkStatus();
}

std::vector<UniqueFd> TakeDescriptors(msghdr& message) {
  std::vector<UniqueFd> out;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(header) + i * sizeof(int), sizeof number);
      out.emplace_back(number);
    }
  }
  return out;
}

struct Received {
  std::vector<UniqueFd> descriptors;
  uint32_t count = 0;  // that the answer says it carries
  uint32_t first = 0;  // number of the first accepted one
};

absl::StatusOr<Received> Receive(const UniqueFd& socket, const std::string& path) {
  v1::DescriptorReply reply = {};
  iovec part = {&reply, sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(MOMENT_DESCRIPTORS_MAX * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) {
    return FromErrno(errno, "waiting for the answer of", path);
  }
  Received received;
  received.descriptors = TakeDescriptors(message);
  if (got == 0) {
    return absl::UnavailableError(absl::StrCat(path, " closed without an answer"));
  }
  if (static_cast<size_t>(got) < sizeof reply || reply.magic != MOMENT_DESCRIPTORS_MAGIC) {
    return absl::InternalError(absl::StrCat(path, " answered something that is not a reply"));
  }
  if (reply.code != 0) {
    reply.message[sizeof reply.message - 1] = '\0';
    return absl::Status(static_cast<absl::StatusCode>(reply.code), reply.message);
  }
  received.count = reply.count;
  received.first = reply.first;
  return received;
}

absl::StatusOr<Received> Ask(const std::string& path, const std::string& token,
                             v1::DescriptorRequest request, Offered offered = {}) {
  request.magic = MOMENT_DESCRIPTORS_MAGIC;
  request.version = 1;
  std::memcpy(request.token, token.data(), std::min(token.size(), sizeof request.token));
  absl::StatusOr<UniqueFd> socket = Connect(path);
  if (!socket.ok()) {
    return socket.status();
  }
  MOMENT_CLIENT_RETURN_IF_ERROR(Send(*socket, request, offered, path));
  return Receive(*socket, path);
}

}  // namespace

DescriptorDoor::DescriptorDoor(std::string path, std::string token)
    : path_(std::move(path)), token_(std::move(token)) {}

absl::StatusOr<RingDescriptors> DescriptorDoor::TakeRing() const {
  v1::DescriptorRequest request = {};
  request.request = v1::DESCRIPTOR_REQUEST_TAKE_RING;
  absl::StatusOr<Received> received = Ask(path_, token_, request);
  if (!received.ok()) {
    return WithContext(received.status(), "taking the ring");
  }
  std::vector<UniqueFd>& taken = received->descriptors;
  if (taken.size() != kRingDescriptors) {
    return absl::InternalError(absl::StrCat("taking the ring: ", taken.size(), " descriptors from ",
                                            path_, ", ", kRingDescriptors, " expected"));
  }
  RingDescriptors ring;
  ring.control = std::move(taken[0]);
  ring.slots = std::move(taken[1]);
  ring.to_client = std::move(taken[2]);
  ring.to_daemon = std::move(taken[3]);
  return ring;
}

absl::StatusOr<std::vector<UniqueFd>> DescriptorDoor::TakePin(const std::string& pin,
                                                              size_t count) const {
  v1::DescriptorRequest request = {};
  request.request = v1::DESCRIPTOR_REQUEST_TAKE_PIN;
  std::memcpy(request.pin, pin.data(), std::min(pin.size(), sizeof request.pin));
  std::vector<UniqueFd> files;
  while (files.size() < count) {
    request.first = static_cast<uint32_t>(files.size());
    absl::StatusOr<Received> received = Ask(path_, token_, request);
    if (!received.ok()) {
      return WithContext(received.status(), "taking the files of a pin");
    }
    // The kernel leaves out those that would exceed the limit.
    if (received->descriptors.size() < received->count) {
      return absl::ResourceExhaustedError(
          absl::StrCat("taking the files of a pin: of ", count, " descriptors only ",
                       files.size() + received->descriptors.size(),
                       " fit into this process; raise its limit of open files (ulimit -n)"));
    }
    if (received->count == 0) {
      return absl::InternalError(absl::StrCat("taking the files of a pin: ", files.size(), " from ",
                                              path_, ", ", count, " expected"));
    }
    std::move(received->descriptors.begin(), received->descriptors.end(),
              std::back_inserter(files));
  }
  return files;
}

absl::Status DescriptorDoor::OfferPidfd() const {
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!pidfd.valid()) {
    return FromErrno(errno, "opening a pidfd of", "this process");
  }
  v1::DescriptorRequest request = {};
  request.request = v1::DESCRIPTOR_REQUEST_OFFER;
  request.kind = v1::DESCRIPTOR_KIND_PIDFD;
  request.count = 1;
  return WithContext(Ask(path_, token_, request, Offered(&pidfd, 1)).status(), "offering a pidfd");
}

absl::StatusOr<uint32_t> DescriptorDoor::OfferMemory(absl::Span<const UniqueFd> chunks) const {
  uint32_t first = 0;
  for (size_t sent = 0; sent < chunks.size(); sent += MOMENT_DESCRIPTORS_MAX) {
    const Offered some = chunks.subspan(sent, MOMENT_DESCRIPTORS_MAX);
    v1::DescriptorRequest request = {};
    request.request = v1::DESCRIPTOR_REQUEST_OFFER;
    request.kind = v1::DESCRIPTOR_KIND_VMM;
    request.count = static_cast<uint32_t>(some.size());
    absl::StatusOr<Received> received = Ask(path_, token_, request, some);
    if (!received.ok()) {
      return WithContext(received.status(), "offering GPU memory");
    }
    first = sent == 0 ? received->first : first;
    if (received->first != first + sent) {
      return absl::InternalError("offering GPU memory: another thread of this session did, too");
    }
  }
  return first;
}

}  // namespace moment::client
