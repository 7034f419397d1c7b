#include "daemon/rpc/descriptor_server.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "daemon/base/errors.h"
#include "daemon/base/log_text.h"
#include "daemon/rpc/descriptor_kind.h"

namespace moment::rpc {
namespace {

constexpr std::chrono::seconds kPatience{5};
constexpr size_t kMaxConnections = 256;
constexpr uint32_t kVersion = 1;

struct Received {
  ssize_t length = -1;  // of the request; -1: nothing came
  v1::DescriptorRequest request = {};
  std::vector<base::UniqueFd> descriptors;
  bool truncated = false;  // more descriptors, or bytes, than there is room for
};

Received Receive(int socket) {
  Received received;
  iovec data = {&received.request, sizeof(received.request)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * MOMENT_DESCRIPTORS_MAX)] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  received.length = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  received.truncated = (message.msg_flags & (MSG_CTRUNC | MSG_TRUNC)) != 0;
  if (received.length < 0) {
    return received;
  }
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      received.descriptors.emplace_back(fd);
    }
  }
  return received;
}

void Send(int socket, const v1::DescriptorReply& reply,
          const std::vector<base::UniqueFd>& descriptors) {
  iovec data = {const_cast<v1::DescriptorReply*>(&reply), sizeof(reply)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * MOMENT_DESCRIPTORS_MAX)] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * descriptors.size());
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * descriptors.size());
    for (size_t i = 0; i < descriptors.size(); ++i) {
      const int fd = descriptors[i].get();
      std::memcpy(CMSG_DATA(part) + i * sizeof(int), &fd, sizeof(int));
    }
  }
  if (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    spdlog::warn("event=descriptor_reply error={}", base::Quoted(std::strerror(errno)));
  }
}

absl::Status CheckRequest(const v1::DescriptorRequest& request, size_t descriptors) {
  if (request.magic != MOMENT_DESCRIPTORS_MAGIC || request.version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("not a descriptor request of version ", kVersion));
  }
  if (request.request == v1::DESCRIPTOR_REQUEST_OFFER &&
      (request.count != descriptors || descriptors == 0)) {
    return absl::InvalidArgumentError(absl::StrCat("the request says ", request.count,
                                                   " descriptors, and ", descriptors, " came"));
  }
  return absl::OkStatus();
}

}  // namespace

DescriptorServer::DescriptorServer(session::SessionManager& sessions)
    : sessions_(sessions),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_([this] { Run(); }) {}

DescriptorServer::~DescriptorServer() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void DescriptorServer::Add(base::UniqueFd connection, session::Peer peer) {
  {
    absl::MutexLock lock(&mutex_);
    incoming_.push_back(
        {std::move(connection), std::move(peer), std::chrono::steady_clock::now() + kPatience});
  }
  ::eventfd_write(wake_.get(), 1);
}

bool DescriptorServer::TakeIncoming() {
  // The counter goes first: whoever adds or stops after it wakes the next poll.
  eventfd_t count = 0;
  ::eventfd_read(wake_.get(), &count);
  absl::MutexLock lock(&mutex_);
  for (Connection& connection : incoming_) {
    if (connections_.size() < kMaxConnections) {
      connections_.push_back(std::move(connection));
    }
  }
  incoming_.clear();
  return !stopping_;
}

void DescriptorServer::Run() {
  while (TakeIncoming()) {
    std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
    for (const Connection& connection : connections_) {
      polled.push_back({connection.fd.get(), POLLIN, 0});
    }
    // Silent connections are looked at again when the first one may be closed.
    const int timeout_ms = connections_.empty() ? -1 : 1000;
    ::poll(polled.data(), polled.size(), timeout_ms);
    const auto time = std::chrono::steady_clock::now();
    for (size_t i = connections_.size(); i-- > 0;) {
      if (polled[i + 1].revents != 0) {
        Serve(connections_[i]);
      }
      if (polled[i + 1].revents != 0 || time >= connections_[i].closes) {
        connections_.erase(connections_.begin() + static_cast<ptrdiff_t>(i));
      }
    }
  }
}

void DescriptorServer::Serve(const Connection& connection) {
  Received received = Receive(connection.fd.get());
  if (received.length <= 0) {
    return;
  }
  if (received.truncated || received.length != sizeof(v1::DescriptorRequest)) {
    received.request.magic = 0;  // refused below, with a reply
  }
  const Reply reply = Answer(received.request, std::move(received.descriptors), connection.peer);
  Send(connection.fd.get(), reply.wire, reply.descriptors);
}

DescriptorServer::Reply DescriptorServer::Answer(const v1::DescriptorRequest& request,
                                                 std::vector<base::UniqueFd> descriptors,
                                                 const session::Peer& peer) {
  Reply reply;
  const absl::Status status = Accept(request, std::move(descriptors), peer, reply);
  if (!status.ok()) {
    reply.descriptors.clear();
    spdlog::warn("event=descriptors_refused pid={} uid={} error={}", peer.pid, peer.uid,
                 base::Quoted(status.message()));
  }
  reply.wire.magic = MOMENT_DESCRIPTORS_MAGIC;
  reply.wire.version = kVersion;
  reply.wire.code = status.raw_code();
  const size_t length = std::min(status.message().size(), sizeof(reply.wire.message) - 1);
  std::memcpy(reply.wire.message, status.message().data(), length);
  return reply;
}

absl::Status DescriptorServer::Accept(const v1::DescriptorRequest& request,
                                      std::vector<base::UniqueFd> descriptors,
                                      const session::Peer& peer, Reply& reply) {
  MOMENT_RETURN_IF_ERROR(CheckRequest(request, descriptors.size()));
  const absl::string_view token(reinterpret_cast<const char*>(request.token),
                                sizeof(request.token));
  MOMENT_ASSIGN_OR_RETURN(const std::shared_ptr<session::Session> session,
                          sessions_.FindByToken(token));
  if (peer.uid != session->uid() && peer.uid != 0) {
    return absl::PermissionDeniedError("the session is another user's");
  }
  if (request.request == v1::DESCRIPTOR_REQUEST_TAKE_RING) {
    MOMENT_ASSIGN_OR_RETURN(reply.descriptors, session->RingDescriptors());
    reply.wire.count = static_cast<uint32_t>(reply.descriptors.size());
    return absl::OkStatus();
  }
  if (request.request == v1::DESCRIPTOR_REQUEST_TAKE_PIN) {
    const std::string pin(request.pin, ::strnlen(request.pin, sizeof(request.pin)));
    MOMENT_ASSIGN_OR_RETURN(reply.descriptors,
                            session->PinDescriptors(pin, request.first, MOMENT_DESCRIPTORS_MAX));
    reply.wire.first = request.first;
    reply.wire.count = static_cast<uint32_t>(reply.descriptors.size());
    return absl::OkStatus();
  }
  if (request.request == v1::DESCRIPTOR_REQUEST_OFFER) {
    return Offer(*session, request, std::move(descriptors), reply);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("descriptor request ", request.request, " does not exist"));
}

absl::Status DescriptorServer::Offer(session::Session& session,
                                     const v1::DescriptorRequest& request,
                                     std::vector<base::UniqueFd> descriptors, Reply& reply) {
  const auto kind = static_cast<v1::DescriptorKind>(request.kind);
  for (const base::UniqueFd& descriptor : descriptors) {
    MOMENT_RETURN_IF_ERROR(CheckDescriptorKind(descriptor.get(), kind));
  }
  reply.wire.count = static_cast<uint32_t>(descriptors.size());
  if (kind == v1::DESCRIPTOR_KIND_PIDFD) {
    return session.OfferPidfd(std::move(descriptors.front()));
  }
  if (kind == v1::DESCRIPTOR_KIND_VMM) {
    MOMENT_ASSIGN_OR_RETURN(reply.wire.first, session.OfferMemory(std::move(descriptors)));
    return absl::OkStatus();
  }
  MOMENT_ASSIGN_OR_RETURN(reply.wire.first, session.OfferFiles(std::move(descriptors)));
  return absl::OkStatus();
}

}  // namespace moment::rpc
