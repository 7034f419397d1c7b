#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "daemon/base/fd.h"

namespace moment::cli {

struct ProgramResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out;
  std::string err;
};

// A child process with its streams captured.
class Program {
 public:
  // Starts `arguments[0]`; `stdout_path` sends its stdout there instead.
  explicit Program(const std::vector<std::string>& arguments, const std::string& stdout_path = "");
  ~Program();  // kills it if it still runs
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Signal(int signal);
  ProgramResult Wait();

 private:
  pid_t pid_ = -1;
  base::UniqueFd out_;
  base::UniqueFd err_;
};

// momentctl as it was built, with these arguments.
ProgramResult RunMomentctl(std::vector<std::string> arguments, const std::string& stdout_path = "");

// For Program.
std::vector<std::string> MomentctlCommand(std::vector<std::string> arguments);

}  // namespace moment::cli
