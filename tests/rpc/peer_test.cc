#include "daemon/rpc/peer.h"

#include <sys/socket.h>
#include <unistd.h>

#include "tests/support/catch.h"

namespace moment::rpc {
namespace {

TEST_CASE("Peer: the kernel's word about a connection, and who is let in by it", "[rpc]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const base::UniqueFd mine(ends[0]);
  const base::UniqueFd other(ends[1]);
  const session::Peer peer = ReadPeer(mine.get()).value();
  REQUIRE(peer.pid == ::getpid());
  REQUIRE(peer.uid == ::getuid());
  REQUIRE(peer.pidfd != nullptr);
  REQUIRE(AccessList{{::getuid()}, {}}.Allows(peer));
  REQUIRE(AccessList{{}, {::getgid()}}.Allows(peer));
  REQUIRE_FALSE(AccessList{{::getuid() + 1}, {::getgid() + 1}}.Allows(peer));
}

TEST_CASE("Peer: the table knows connections by the names gRPC gives them", "[rpc]") {
  PeerTable table;
  session::Peer peer;
  peer.pid = 42;
  table.Add(7, peer);
  REQUIRE(table.Find("fd:7").value().pid == 42);
  REQUIRE_FALSE(table.Find("fd:8").ok());
  REQUIRE_FALSE(table.Find("unix:").ok());
}

}  // namespace
}  // namespace moment::rpc
