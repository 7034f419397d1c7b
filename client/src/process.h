#pragma once

#include <signal.h>

#include <string>

#include "absl/status/status.h"

namespace moment::client {

// OK in a process that may use gRPC: not one forked from a process that had used this library,
// where locks and threads of the parent are gone. Registers the fork handler at the first call.
absl::Status CheckNotForked();

// True in the process that made the object, false in a forked child of it. No lock, no system call
// beyond getpid.
class ProcessOwner {
 public:
  ProcessOwner();
  bool mine() const;

 private:
  long pid_;
};

// 16 random bytes of the kernel: never of a generator that the trainer seeds.
std::string RandomBytes16();
std::string Hex(const std::string& bytes);

std::string HostName();
std::string ProgramName();

// Blocks all signals on this thread while it lives: threads started under it inherit that, so the
// trainer's handlers run on the trainer's own threads.
class SignalsBlocked {
 public:
  SignalsBlocked();
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t previous_;
};

}  // namespace moment::client
