#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace moment::e2e {

// A directory of the test's own on a real file system, removed at its end.
class Place {
 public:
  explicit Place(const std::string& parent = "/tmp");
  ~Place();
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// How a child ended: its exit code, or minus the signal's number.
struct Ended {
  int code = 0;
  std::string output;  // standard output and error
};

// A child process whose output goes to a file. Killed by its destructor if it still runs.
class Child {
 public:
  Child(const std::vector<std::string>& arguments, const std::string& output_path,
        const std::vector<std::string>& variables = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int number) const;
  // Waits for its end.
  Ended Wait();
  // nullopt while it runs.
  std::optional<Ended> Poll();
  std::string Output() const;
  // Waits until the output holds `text` (true) or the child has ended or `seconds` are over.
  bool AwaitOutput(const std::string& text, int seconds = 60);

 private:
  std::string output_path_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

struct DaemonOptions {
  std::vector<std::string> flags;
  std::vector<std::string> variables;
  std::string state_directory;  // "": "state" in the place
  std::string socket_directory;
  std::optional<mode_t> umask;
};

// momentd over `place`; it serves when the constructor returns.
class Daemon {
 public:
  explicit Daemon(const Place& place, const DaemonOptions& options = {});

  Child& process() { return *child_; }
  std::string socket(const std::string& name = "momentd.sock") const {
    return socket_directory_ + "/" + name;
  }
  // SIGTERM, then its end.
  Ended Stop();

 private:
  std::string socket_directory_;
  std::unique_ptr<Child> child_;
};

// The arguments of momentd over `place`, without waiting for anything.
std::vector<std::string> DaemonArguments(const Place& place, const DaemonOptions& options = {});

// Runs a program to its end.
Ended Run(const std::vector<std::string>& arguments,
          const std::vector<std::string>& variables = {});

}  // namespace moment::e2e
