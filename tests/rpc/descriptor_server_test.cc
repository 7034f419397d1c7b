#include "daemon/rpc/descriptor_server.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "daemon/rpc/descriptor_kind.h"
#include "daemon/rpc/peer.h"
#include "tests/session/fake_pipeline.h"
#include "tests/support/catch.h"

namespace moment::rpc {
namespace {

base::UniqueFd OwnPidfd() {
  return base::UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
}

struct Answer {
  v1::DescriptorReply reply = {};
  std::vector<base::UniqueFd> descriptors;
};

// fd.sock with one attached session behind it.
struct Door {
  Door() {
    spdlog::set_level(spdlog::level::off);
    session::ManagerOptions options;
    options.make_ring = session::MakeFakeRing(std::make_shared<std::atomic<bool>>(false));
    sessions = std::make_unique<session::SessionManager>(options, opener, *peers);
    session::Peer peer;
    peer.pid = ::getpid();
    peer.uid = ::getuid();
    opened = sessions->Open(session::FakeOpenRequest(), peer).value();
    server = std::make_unique<DescriptorServer>(*sessions);
  }

  void Attach() {
    v1::AttachRequest attach;
    attach.set_generation(1);
    REQUIRE(sessions->Find(opened.session()).value()->Attach(attach).ok());
  }

  base::UniqueFd Connect() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    session::Peer peer = ReadPeer(ends[0]).value();
    server->Add(base::UniqueFd(ends[0]), std::move(peer));
    return base::UniqueFd(ends[1]);
  }

  v1::DescriptorRequest Request(uint32_t kind, uint32_t count) const {
    v1::DescriptorRequest request = {};
    request.magic = MOMENT_DESCRIPTORS_MAGIC;
    request.version = 1;
    request.request = v1::DESCRIPTOR_REQUEST_OFFER;
    request.kind = kind;
    request.count = count;
    std::memcpy(request.token, opened.token().data(), sizeof(request.token));
    return request;
  }

  Answer Ask(const v1::DescriptorRequest& request, const std::vector<int>& descriptors = {}) {
    const base::UniqueFd socket = Connect();
    Send(socket.get(), &request, sizeof(request), descriptors);
    return Receive(socket.get());
  }

  static void Send(int socket, const void* bytes, size_t length,
                   const std::vector<int>& descriptors) {
    iovec data = {const_cast<void*>(bytes), length};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 64)] = {};
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
      std::memcpy(CMSG_DATA(part), descriptors.data(), sizeof(int) * descriptors.size());
    }
    REQUIRE(::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(length));
  }

  static Answer Receive(int socket) {
    Answer answer;
    iovec data = {&answer.reply, sizeof(answer.reply)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * 64)] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    REQUIRE(::recvmsg(socket, &message, 0) == sizeof(answer.reply));
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
         part = CMSG_NXTHDR(&message, part)) {
      for (size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
        answer.descriptors.emplace_back(fd);
      }
    }
    return answer;
  }

  session::FakeOpener opener;
  std::unique_ptr<session::PeerWatch> peers = session::PeerWatch::Create().value();
  std::unique_ptr<session::SessionManager> sessions;
  v1::OpenResponse opened;
  std::unique_ptr<DescriptorServer> server;
};

TEST_CASE("Descriptors: the ring's four go to whoever has the token, once it is attached",
          "[rpc]") {
  Door door;
  v1::DescriptorRequest request = door.Request(0, 0);
  request.request = v1::DESCRIPTOR_REQUEST_TAKE_RING;
  REQUIRE(door.Ask(request).reply.code == static_cast<int>(absl::StatusCode::kFailedPrecondition));
  door.Attach();
  const Answer answer = door.Ask(request);
  REQUIRE(answer.reply.code == 0);
  REQUIRE(answer.reply.count == 4);
  REQUIRE(answer.descriptors.size() == 4);
}

TEST_CASE("Descriptors: a pin's files are handed out from the bucket that is asked for", "[rpc]") {
  Door door;
  door.Attach();
  const auto session = door.sessions->Find(door.opened.session()).value();
  v1::RefreshRequest refresh;
  refresh.set_operation("fill");
  refresh.mutable_whole();
  REQUIRE(session->Refresh(refresh).ok());
  v1::PinRequest pin;
  pin.set_operation(std::string(64, 'p'));
  REQUIRE(session->Pin(pin).ok());
  v1::DescriptorRequest request = door.Request(0, 0);
  request.request = v1::DESCRIPTOR_REQUEST_TAKE_PIN;
  REQUIRE(door.Ask(request).reply.code == static_cast<int>(absl::StatusCode::kNotFound));
  std::memcpy(request.pin, pin.operation().data(), sizeof(request.pin));
  const Answer files = door.Ask(request);
  REQUIRE(files.reply.code == 0);
  REQUIRE(files.reply.count == 1);
  REQUIRE(files.descriptors.size() == 1);
  request.first = 1;
  const Answer beyond = door.Ask(request);
  REQUIRE(beyond.reply.code == 0);
  REQUIRE(beyond.reply.count == 0);
  REQUIRE(beyond.descriptors.empty());
}

TEST_CASE("Descriptors: a wrong token is refused", "[rpc]") {
  Door door;
  door.Attach();
  v1::DescriptorRequest request = door.Request(0, 0);
  request.request = v1::DESCRIPTOR_REQUEST_TAKE_RING;
  request.token[15] ^= 1;
  const Answer answer = door.Ask(request);
  REQUIRE(answer.reply.code == static_cast<int>(absl::StatusCode::kPermissionDenied));
  REQUIRE(answer.descriptors.empty());
}

TEST_CASE("Descriptors: a pidfd must be one, and is refused naming what it is instead", "[rpc]") {
  Door door;
  const base::UniqueFd directory(::open("/tmp", O_RDONLY | O_CLOEXEC));
  const Answer refused = door.Ask(door.Request(v1::DESCRIPTOR_KIND_PIDFD, 1), {directory.get()});
  REQUIRE(refused.reply.code == static_cast<int>(absl::StatusCode::kInvalidArgument));
  REQUIRE(std::string(refused.reply.message) == "the descriptor is a directory, not a pidfd");
  const base::UniqueFd pidfd = OwnPidfd();
  REQUIRE(door.Ask(door.Request(v1::DESCRIPTOR_KIND_PIDFD, 1), {pidfd.get()}).reply.code == 0);
}

TEST_CASE("Descriptors: files must be regular ones, and are numbered", "[rpc]") {
  Door door;
  char path[] = "/tmp/moment-descriptor-XXXXXX";
  const base::UniqueFd file(::mkstemp(path));
  ::unlink(path);
  const base::UniqueFd memory(::memfd_create("memory", MFD_CLOEXEC));
  const base::UniqueFd pidfd = OwnPidfd();
  for (const int wrong : {memory.get(), pidfd.get()}) {
    REQUIRE(door.Ask(door.Request(v1::DESCRIPTOR_KIND_FILE, 1), {wrong}).reply.code ==
            static_cast<int>(absl::StatusCode::kInvalidArgument));
  }
  REQUIRE(
      door.Ask(door.Request(v1::DESCRIPTOR_KIND_FILE, 2), {file.get(), file.get()}).reply.code ==
      0);
  const Answer second = door.Ask(door.Request(v1::DESCRIPTOR_KIND_FILE, 1), {file.get()});
  REQUIRE(second.reply.first == 2);
  REQUIRE(second.reply.count == 1);
}

TEST_CASE("Descriptors: what is no GPU memory, and unknown kinds are refused", "[rpc]") {
  Door door;
  const base::UniqueFd pidfd = OwnPidfd();
  REQUIRE(door.Ask(door.Request(v1::DESCRIPTOR_KIND_VMM, 1), {pidfd.get()}).reply.code ==
          static_cast<int>(absl::StatusCode::kInvalidArgument));
  REQUIRE(door.Ask(door.Request(9, 1), {pidfd.get()}).reply.code ==
          static_cast<int>(absl::StatusCode::kInvalidArgument));
}

TEST_CASE("Descriptors: another count than came, and garbage, are refused with a reply", "[rpc]") {
  Door door;
  const base::UniqueFd pidfd = OwnPidfd();
  REQUIRE(door.Ask(door.Request(v1::DESCRIPTOR_KIND_PIDFD, 2), {pidfd.get()}).reply.code ==
          static_cast<int>(absl::StatusCode::kInvalidArgument));
  const base::UniqueFd socket = door.Connect();
  Door::Send(socket.get(), "hello", 5, {});
  REQUIRE(Door::Receive(socket.get()).reply.code ==
          static_cast<int>(absl::StatusCode::kInvalidArgument));
}

TEST_CASE("Descriptors: a silent connection delays no other", "[rpc]") {
  Door door;
  const base::UniqueFd silent = door.Connect();
  const base::UniqueFd pidfd = OwnPidfd();
  REQUIRE(door.Ask(door.Request(v1::DESCRIPTOR_KIND_PIDFD, 1), {pidfd.get()}).reply.code == 0);
}

TEST_CASE("Descriptors: kinds are told apart by the kernel's word", "[rpc]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const base::UniqueFd in(ends[0]);
  const base::UniqueFd out(ends[1]);
  REQUIRE(DescribeDescriptor(in.get()) == "a pipe");
  const base::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(DescribeDescriptor(null.get()) == "a device (/dev/null)");
  REQUIRE(DescribeDescriptor(OwnPidfd().get()) == "a pidfd");
}

}  // namespace
}  // namespace moment::rpc
