#include "daemon/rpc/listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/support/catch.h"

namespace moment::rpc {
namespace {

bool Names(const absl::Status& status, const std::string& text) {
  return status.message().find(text) != absl::string_view::npos;
}

// A directory of the test's own, removed at its end.
class Place {
 public:
  Place() {
    char path[] = "/tmp/moment-listener-XXXXXX";
    REQUIRE(::mkdtemp(path) != nullptr);
    path_ = path;
  }
  ~Place() { std::filesystem::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

absl::StatusOr<SocketDirectory> Acquire(const std::string& path, uint32_t mode = 0750) {
  SocketDirectoryOptions options;
  options.path = path;
  options.mode = mode;
  return SocketDirectory::Acquire(options);
}

absl::StatusOr<UnixListener> Bind(const SocketDirectory& directory, uint32_t mode = 0660) {
  SocketOptions options;
  options.name = "momentd.sock";
  options.type = SOCK_STREAM;
  options.mode = mode;
  return UnixListener::Bind(directory, options);
}

uint32_t ModeOf(const std::string& path) {
  struct stat info = {};
  REQUIRE(::lstat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

int ConnectTo(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const base::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
  return ::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
}

TEST_CASE("Listener: directory and socket have the modes asked for, whatever the umask", "[rpc]") {
  for (const mode_t mask : {mode_t{022}, mode_t{077}, mode_t{0}}) {
    const Place place;
    const mode_t before = ::umask(mask);
    {
      const SocketDirectory directory = Acquire(place / "run").value();
      const UnixListener listener = Bind(directory).value();
      REQUIRE(ModeOf(place / "run") == 0750);
      REQUIRE(ModeOf(listener.path()) == 0660);
    }
    ::umask(before);
  }
}

TEST_CASE("Listener: a directory that is ours alone is brought to the mode asked for", "[rpc]") {
  const Place place;
  std::filesystem::create_directory(place / "run");
  REQUIRE(::chmod((place / "run").c_str(), 0755) == 0);
  REQUIRE(Acquire(place / "run").ok());
  REQUIRE(ModeOf(place / "run") == 0750);
}

TEST_CASE("Listener: a directory that holds other things keeps its mode", "[rpc]") {
  const Place place;
  std::filesystem::create_directory(place / "run");
  REQUIRE(::chmod((place / "run").c_str(), 0755) == 0);
  std::ofstream(place / "run/notes") << "mine";
  REQUIRE(Acquire(place / "run").ok());
  REQUIRE(ModeOf(place / "run") == 0755);
  REQUIRE(::chmod((place / "run").c_str(), 0777) == 0);
  REQUIRE(Names(Acquire(place / "run").status(), "written by everyone"));
}

TEST_CASE("Listener: a second daemon on the directory is refused naming the holder", "[rpc]") {
  const Place place;
  const SocketDirectory directory = Acquire(place / "run").value();
  const UnixListener listener = Bind(directory).value();
  const absl::Status status = Acquire(place / "run").status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(Names(status, absl::StrCat("pid ", ::getpid())));
  REQUIRE(ConnectTo(listener.path()) == 0);
}

TEST_CASE("Listener: a stale socket is replaced", "[rpc]") {
  const Place place;
  const SocketDirectory directory = Acquire(place / "run").value();
  {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (place / "run/momentd.sock").c_str(),
                 sizeof(address.sun_path) - 1);
    const base::UniqueFd dead(::socket(AF_UNIX, SOCK_STREAM, 0));
    REQUIRE(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  }
  const UnixListener listener = Bind(directory).value();
  REQUIRE(ConnectTo(listener.path()) == 0);
}

TEST_CASE("Listener: a socket that something alive serves is left alone", "[rpc]") {
  const Place place;
  const SocketDirectory directory = Acquire(place / "run").value();
  const UnixListener alive = Bind(directory).value();
  const absl::Status status = Bind(directory).status();
  REQUIRE(status.code() == absl::StatusCode::kFailedPrecondition);
  REQUIRE(ConnectTo(alive.path()) == 0);
}

TEST_CASE("Listener: a regular file or a link in the socket's place is refused and kept", "[rpc]") {
  const Place place;
  const SocketDirectory directory = Acquire(place / "run").value();
  std::ofstream(place / "run/momentd.sock") << "mine";
  REQUIRE(Bind(directory).status().code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(std::filesystem::file_size(place / "run/momentd.sock") == 4);
  std::filesystem::remove(place / "run/momentd.sock");
  std::filesystem::create_symlink(place / "elsewhere", place / "run/momentd.sock");
  REQUIRE(Bind(directory).status().code() == absl::StatusCode::kInvalidArgument);
}

TEST_CASE("Listener: a path over 107 bytes is refused before anything is made", "[rpc]") {
  const Place place;
  const std::string path = place / std::string(120, 'p');
  const absl::Status status = Acquire(path).status();
  REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
  REQUIRE(Names(status, "107"));
  REQUIRE_FALSE(std::filesystem::exists(path));
}

TEST_CASE("Listener: its end removes its own name and no other's", "[rpc]") {
  const Place place;
  const SocketDirectory directory = Acquire(place / "run").value();
  {
    const UnixListener listener = Bind(directory).value();
    std::filesystem::remove(listener.path());
    std::ofstream(listener.path()) << "other";
  }
  REQUIRE(std::filesystem::exists(place / "run/momentd.sock"));
  std::filesystem::remove(place / "run/momentd.sock");
  { const UnixListener listener = Bind(directory).value(); }
  REQUIRE_FALSE(std::filesystem::exists(place / "run/momentd.sock"));
}

}  // namespace
}  // namespace moment::rpc
